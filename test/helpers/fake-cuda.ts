// The stand-in for the driver's CUDA library, compiled from fake-cuda.c
// once per content, and kept in the folder that set-up uses.
import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';

const SOURCE = resolve(import.meta.dirname, 'fake-cuda.c');

/** @returns the library's path */
export function fakeCuda(): string {
  const cache = join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'longshore');
  const hash = createHash('sha256').update(readFileSync(SOURCE)).digest('hex').slice(0, 12);
  const path = join(cache, `fake-cuda-${hash}.so`);
  if (existsSync(path)) return path;
  mkdirSync(cache, { recursive: true });
  const mine = `${path}.${process.pid}`;
  execFileSync('cc', ['-shared', '-fPIC', '-O1', '-o', mine, SOURCE], { timeout: 60_000 });
  renameSync(mine, path);
  return path;
}
