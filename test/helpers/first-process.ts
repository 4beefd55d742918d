// An interpreter as the first process of a container has it: number 1 in a namespace of its own, which ends with it.
import { chmod, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** @returns a program that runs Python so */
export async function firstProcess(): Promise<string> {
  const path = join(await mkdtemp(join(tmpdir(), 'ls-first-')), 'python3');
  const root = process.getuid?.() === 0 ? '' : '--user --map-root-user ';
  const python = process.env['LONGSHORE_TEST_PYTHON'] ?? 'python3';
  await writeFile(path, `#!/bin/sh\nexec unshare ${root}--pid --fork --kill-child -- ${python} "$@"\n`);
  await chmod(path, 0o755);
  return path;
}
