// The web console as `npm start` builds it, built by the first test that needs it.
import { mkdir, rm, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { waitFor } from './programs.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
// Plain JavaScript, so that its types are said here.
const BUILD: string = join(ROOT, 'scripts/build/console.mjs');
interface Build {
  readonly consoleIsCurrent: (into: string) => Promise<boolean>;
  readonly writeConsole: (into: string) => Promise<unknown>;
}

/** A build takes seconds: a lock that is older was left by a process that died. */
const STALE_LOCK_MS = 60_000;

/**
 * Builds the console into `dist`, unless what is there is newer than its sources. Files of tests run side by side, so
 * one of them builds, and the others wait for it.
 */
export async function writeConsoleIfStale(): Promise<void> {
  const { consoleIsCurrent, writeConsole } = (await import(BUILD)) as Build;
  const dist = join(ROOT, 'dist');
  if (await consoleIsCurrent(dist)) return;
  await mkdir(dist, { recursive: true });
  const lock = join(dist, '.console-lock');
  const isOurs = await waitFor(
    async () => {
      if (await consoleIsCurrent(dist)) return 'built';
      const taken = await mkdir(lock).catch(() => 'taken');
      if (taken === undefined) return 'ours';
      const { mtimeMs } = await stat(lock).catch(() => ({ mtimeMs: Date.now() }));
      if (Date.now() - mtimeMs > STALE_LOCK_MS) await rm(lock, { recursive: true, force: true });
      return undefined;
    },
    'the console is built',
    2 * STALE_LOCK_MS,
  );
  if (isOurs === 'built') return;
  try {
    if (!(await consoleIsCurrent(dist))) await writeConsole(dist);
  } finally {
    await rm(lock, { recursive: true, force: true });
  }
}
