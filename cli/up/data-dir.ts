// The data directory of `up`: created, writable, owned by one `up` at a time, and free of processes
// that a killed `up` left. The lock is a listening socket in Linux's abstract namespace. The kernel
// gives it to one process and takes it back when that process ends, however it ends.
import { createHash } from 'node:crypto';
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import { CliError, errorCode } from '../errors.ts';
import { signalGroup } from '#shared/child-process.ts';
import { isAlive, startTicks } from '#shared/process-facts.ts';

/** A child of an `up`, so that the next one can tell whether it is still there. */
interface ChildRecord {
  readonly name: string;
  readonly pid: number;
  readonly ticks: string;
}

/** How long the children of a killed `up` get to notice and leave before they are ended. */
const LEFTOVER_GRACE_MS = 15_000;

/** @throws CliError when the directory cannot be made or written */
export function makeDataDir(path: string): void {
  try {
    makeFolders(path);
    accessSync(path, constants.W_OK | constants.X_OK);
    // A read-only file system lets root through the check above.
    const probe = join(path, `.probe-${process.pid}`);
    closeSync(openSync(probe, 'w'));
    rmSync(probe);
  } catch (error) {
    throw new CliError(
      `cannot write to the data directory ${path} (${errorCode(error) || messageOf(error)}): make it writable, or choose another with --data-dir or LONGSHORE_DATA_DIR`,
      { cause: error },
    );
  }
}

/**
 * Creates folder by folder: Node's recursive call never returns
 * where a parent refuses entries with ENOENT, as /proc does.
 */
function makeFolders(path: string): void {
  if (existsSync(path)) return;
  if (dirname(path) !== path) makeFolders(dirname(path));
  mkdirSync(path, { mode: 0o700 });
}

/**
 * Takes the directory for this process.
 * @throws CliError when another `up` has it
 */
export async function lockDataDir(path: string): Promise<{ release(): Promise<void> }> {
  const name = createHash('sha256').update(realpathSync(path)).digest('hex').slice(0, 32);
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => {
      reject(
        errorCode(error) === 'EADDRINUSE'
          ? new CliError(
              `another \`longshore up\` runs with the data directory ${path}: stop it, or choose another with --data-dir`,
              { cause: error },
            )
          : new CliError(`cannot lock the data directory ${path} (${messageOf(error)})`, { cause: error }),
      );
    });
    server.listen({ path: `\0longshore-up-${name}` }, resolve);
  });
  // The lock alone is no reason to go on running.
  server.unref();
  return { release: () => new Promise<void>((resolve) => server.close(() => resolve())) };
}

/** Remembers the running children in the directory. */
export class ChildList {
  readonly #path: string;
  readonly #records = new Map<string, ChildRecord>();

  constructor(dataDir: string) {
    this.#path = join(dataDir, 'up-children.json');
  }

  add(name: string, pid: number): void {
    const ticks = startTicks(pid);
    if (ticks === undefined) return;
    this.#records.set(name, { name, pid, ticks });
    this.#write();
  }

  remove(name: string): void {
    if (this.#records.delete(name)) this.#write();
  }

  /**
   * Waits until the children that an earlier `up` recorded are gone. They end by themselves when that `up` died, and
   * are killed after the grace.
   * @param onWait - called once per child that is still there
   */
  async waitForLeftovers(onWait: (name: string) => void): Promise<void> {
    const left = this.#read().filter((child) => isAlive(child.pid, child.ticks));
    for (const child of left) onWait(child.name);
    const deadlineMs = performance.now() + LEFTOVER_GRACE_MS;
    for (const child of left) {
      while (isAlive(child.pid, child.ticks) && performance.now() < deadlineMs) await sleep(50);
      if (isAlive(child.pid, child.ticks)) signalGroup(child.pid, 'SIGKILL');
      while (isAlive(child.pid, child.ticks) && performance.now() < deadlineMs + 5_000) await sleep(20);
    }
  }

  #read(): readonly ChildRecord[] {
    try {
      const value: unknown = JSON.parse(readFileSync(this.#path, 'utf8'));
      return Array.isArray(value) ? value.filter(isChildRecord) : [];
    } catch {
      return [];
    }
  }

  #write(): void {
    const temporary = `${this.#path}.tmp`;
    writeFileSync(temporary, JSON.stringify([...this.#records.values()]), { mode: 0o600 });
    renameSync(temporary, this.#path);
  }
}

function isChildRecord(value: unknown): value is ChildRecord {
  if (typeof value !== 'object' || value === null) return false;
  const record = value as Readonly<Record<string, unknown>>;
  return (
    typeof record['name'] === 'string' && Number.isSafeInteger(record['pid']) && typeof record['ticks'] === 'string'
  );
}
