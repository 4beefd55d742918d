// The web console as `npm start` builds it, built by the first test that needs it.
import { join, resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '..', '..');
// Plain JavaScript, so that its types are said here.
const BUILD: string = join(ROOT, 'scripts/build/console.mjs');
interface Build {
  readonly consoleIsCurrent: (into: string) => Promise<boolean>;
  readonly writeConsole: (into: string) => Promise<unknown>;
}

/** Builds the console into `dist`, unless what is there is newer than its sources. */
export async function writeConsoleIfStale(): Promise<void> {
  const { consoleIsCurrent, writeConsole } = (await import(BUILD)) as Build;
  const dist = join(ROOT, 'dist');
  if (!(await consoleIsCurrent(dist))) await writeConsole(dist);
}
