// The block devices of a host, as systeminformation lists them, in a separate process. At its deadline the process and
// its children are killed.
import { fileURLToPath } from 'node:url';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Value } from 'typebox/value';
import { runInChild } from '../child.ts';

/** The used fields of systeminformation's `blockDevices`. */
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
 * @param path - search path of `lsblk` and `mdadm`; empty: the child's own
 * @throws Error at the deadline, or when the devices cannot be listed
 */
export async function listBlockDevices(deadlineMs: number, path = ''): Promise<readonly BlockDevice[]> {
  const program = fileURLToPath(new URL('./block-devices.ts', import.meta.url));
  const text = await runInChild('PATH=${3:-$PATH} exec "$1" "$2"', [process.execPath, program, path], deadlineMs);
  const devices: unknown = JSON.parse(text);
  if (!Value.Check(BlockDevices, devices)) throw new Error('the list of disks has another form');
  return devices;
}
