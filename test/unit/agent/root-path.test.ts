// The writable folder of a container's root, by its mounts.
import { expect, test } from 'vitest';
import { upperDirIn } from '../../../agent/containers/root-path.ts';

const SNAPSHOT = '/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/15/fs';
const root = (options: string): string =>
  `600 500 0:60 / / rw,relatime master:3 - overlay overlay rw,${options}\n601 600 0:61 / /proc rw - proc proc rw\n`;

test.each([
  ['an overlay', root(`lowerdir=1/fs:2/fs,upperdir=${SNAPSHOT},workdir=/w,index=off`), SNAPSHOT],
  ['a folder with a space', root('upperdir=/my\\040disk/fs,workdir=/w'), '/my disk/fs'],
  ['no propagation', '600 500 0:60 / / ro - overlay overlay rw,lowerdir=a,upperdir=/u,workdir=/w\n', '/u'],
  ['a read-only overlay without one', root('lowerdir=1/fs:2/fs'), ''],
  ['another file system', '600 500 8:1 /c / rw - xfs /dev/sda1 rw,upperdir=/x\n', ''],
  ['an overlay that is not the root', '600 500 0:60 / /data rw - overlay overlay rw,upperdir=/x\n', ''],
  ['a process that has ended', '', ''],
])('%s', (_what, mountinfo, upper) => {
  expect(upperDirIn(mountinfo)).toBe(upper);
});
