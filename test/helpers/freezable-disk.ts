/**
 * A file system of its own whose reads and writes can be made to hang. A network disk does so when its server is gone.
 */
import { execFileSync } from 'node:child_process';
import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface FreezableDisk {
  readonly dir: string;
  /** Blocks reads and writes there until `thaw`; the processes cannot be killed meanwhile. */
  freeze(): void;
  /** Thawing what is not frozen does nothing. */
  thaw(): void;
  close(): Promise<void>;
}

/** Needs root, as mounting does. */
export async function freezableDisk(): Promise<FreezableDisk> {
  const base = await mkdtemp(join(tmpdir(), 'ls-disk-'));
  const image = join(base, 'disk.img');
  const dir = join(base, 'mounted');
  const run = (program: string, ...args: string[]): string => execFileSync(program, args, { encoding: 'utf8' }).trim();
  await writeFile(image, '');
  await truncate(image, 16 * 1024 * 1024);
  run('mkfs.ext4', '-q', image);
  const device = run('losetup', '-f', '--show', image);
  run('mkdir', dir);
  run('mount', device, dir);
  let frozen = false;
  return {
    dir,
    freeze: () => {
      run('fsfreeze', '-f', dir);
      frozen = true;
    },
    thaw: () => {
      if (!frozen) return;
      run('fsfreeze', '-u', dir);
      frozen = false;
    },
    close: async () => {
      run('umount', '-l', dir);
      run('losetup', '-d', device);
      await rm(base, { recursive: true, force: true });
    },
  };
}
