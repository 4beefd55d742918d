// The block devices of a host, as systeminformation lists them: in a process of its own, which is killed with what it runs when it does not end in time.
import { fileURLToPath } from 'node:url';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Value } from 'typebox/value';
import { runInChild } from '../volumes/child.ts';

/** The fields that are used of systeminformation's `blockDevices`. */
const BlockDevice = Type.Object({
  name: Type.String(),
  type: Type.String(),
  size: Type.Number(),
  physical: Type.String(),
  model: Type.String(),
  protocol: Type.String(),
});
export type BlockDevice = Readonly<Static<typeof BlockDevice>>;
const BlockDevices = Type.Array(BlockDevice);

/**
 * @param path - where `lsblk` and `mdadm` are looked for
 * @throws Error at the deadline, or when they cannot be listed
 */
export async function listBlockDevices(
  deadlineMs: number,
  path = '/usr/sbin:/usr/bin:/sbin:/bin',
): Promise<readonly BlockDevice[]> {
  const program = fileURLToPath(new URL('./block-devices.ts', import.meta.url));
  const text = await runInChild('PATH=$3 exec "$1" "$2"', [process.execPath, program, path], deadlineMs);
  const devices: unknown = JSON.parse(text);
  if (!Value.Check(BlockDevices, devices)) throw new Error('the list of disks has another form');
  return devices;
}
