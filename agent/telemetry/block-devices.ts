// A separate program, started by list-disks.ts: prints the block devices of this host. The library may block its
// process for any time: it runs `lsblk` without a deadline, and `mdadm` synchronously for each array of software RAID.
import si from 'systeminformation';

/** Bound on devices, which keeps the text below the reader's limit. */
const MOST = 128;

const devices = (await si.blockDevices())
  .filter(({ type }) => type === 'disk')
  .slice(0, MOST)
  .map(({ name, type, size, physical, model, protocol }) => {
    return { name, type, size, physical, model: model.slice(0, 200), protocol };
  });
process.stdout.write(JSON.stringify(devices));
