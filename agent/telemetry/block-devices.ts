// A program of its own, which list-disks.ts starts: prints the block devices of this host. The library may hold its process up for as long as it likes: it runs `lsblk` without a deadline, and `mdadm` synchronously for each array
// of software RAID.
import si from 'systeminformation';

/** Their text is below what the reader takes. */
const MOST = 128;

const devices = (await si.blockDevices())
  .filter(({ type }) => type === 'disk')
  .slice(0, MOST)
  .map(({ name, type, size, physical, model, protocol }) => {
    return { name, type, size, physical, model: model.slice(0, 200), protocol };
  });
process.stdout.write(JSON.stringify(devices));
