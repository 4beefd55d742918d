// Stored facts of devices across runs of the agent. A device may be out of reach at the next start, and a broken or
// unproven one must stay so.
import { join } from 'node:path';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Value } from 'typebox/value';
import type { Log } from '#shared/log.ts';
import { readIfThere, writeDurably } from '../durable.ts';

const StoredDevice = Type.Object({
  uuid: Type.String(),
  model: Type.String(),
  memoryBytes: Type.Number(),
  nvlinkIsland: Type.Optional(Type.Union([Type.Number(), Type.Undefined()])),
  computeCap: Type.Optional(Type.Union([Type.String(), Type.Undefined()])),
  busId: Type.String(),
  index: Type.Number(),
  numaNode: Type.Number(),
  parentUuid: Type.String(),
  instance: Type.Optional(Type.Union([Type.Number(), Type.Undefined()])),
  state: Type.String(),
  why: Type.String(),
  resetAsked: Type.Boolean(),
  probeCures: Type.Boolean(),
  /** A boot or a fault took the device, and no look has shown it since. */
  awaited: Type.Boolean(),
  /** Nobody known has its memory. */
  occupied: Type.Boolean(),
  /** An operator keeps the device out. */
  excluded: Type.Boolean(),
  unproven: Type.Boolean(),
  /** The engine's ids of containers whose processes may still use the device. */
  lastDockerIds: Type.Array(Type.String()),
});
const Stored = Type.Object({
  version: Type.Literal(1),
  bootId: Type.String(),
  /** Sequence number in the kernel's log up to which lines were taken in. */
  sequence: Type.Number(),
  /** Journal cursor of the last line taken in, where the journal is the source. */
  journalCursor: Type.Optional(Type.String({ maxLength: 1000 })),
  /** Time of the write since boot; earlier lines have been taken in. */
  savedAtMs: Type.Number(),
  /** Counts in this boot by `bus xid`. */
  xids: Type.Record(Type.String(), Type.Number()),
  devices: Type.Array(StoredDevice),
  /** Driver of the probes that devices passed; empty: none was probed. */
  probedDriver: Type.String(),
  /** GPUs that the machine's pool expects. */
  expected: Type.Optional(Type.Integer()),
  /** The idle use of devices, by UUID, and the driver with which it was seen. */
  idle: Type.Object({
    driver: Type.String(),
    lowestMib: Type.Record(Type.String(), Type.Number()),
    acceptedMib: Type.Record(Type.String(), Type.Number()),
  }),
  /** Errors of devices in this boot that named no recovery, and the end of their rest since boot. */
  rests: Type.Record(Type.String(), Type.Object({ faults: Type.Number(), restUntilMs: Type.Number() })),
});
export type StoredDevice = Readonly<Static<typeof StoredDevice>>;
export type StoredDevices = Readonly<Static<typeof Stored>>;

/** Bounds writes: a burst of errors is one write. */
const WRITES_APART_MS = 1000;

const FILE = 'gpus.json';

/**
 * Facts of devices that an agent has stored; undefined: none.
 * @throws when the file cannot be read, or has another form
 */
export async function readStored(stateDir: string): Promise<StoredDevices | undefined> {
  const text = await readIfThere(join(stateDir, FILE));
  if (text === undefined) return undefined;
  const stored: unknown = JSON.parse(text);
  if (!Value.Check(Stored, stored)) throw new Error('the file has another form');
  return stored;
}

/**
 * The file of devices, written at most once a second. A crash loses the changes of that second: the kernel's log is
 * then read again from the stored position.
 */
export class DeviceFile {
  readonly #directory: string;
  readonly #path: string;
  readonly #log: Log;
  readonly #content: () => StoredDevices;
  #writing: Promise<void> = Promise.resolve();
  #wroteAtMs = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  /** @param content - called at each write */
  constructor(stateDir: string, log: Log, content: () => StoredDevices) {
    this.#directory = stateDir;
    this.#path = join(stateDir, FILE);
    this.#log = log;
    this.#content = content;
  }

  /** Reads the file. Undefined: absent or unreadable; the tool is then asked anew, and the journal has the leases. */
  async read(): Promise<StoredDevices | undefined> {
    try {
      return await readStored(this.#directory);
    } catch (error) {
      this.#log.warn(
        { err: error, path: this.#path },
        'what was known of GPUs cannot be read: they are looked at anew',
      );
      return undefined;
    }
  }

  /** Schedules a write. */
  changed(): void {
    const delayMs = Math.max(0, this.#wroteAtMs + WRITES_APART_MS - performance.now());
    this.#timer ??= setTimeout(() => this.#write(), delayMs);
  }

  /** Resolves when every change until now is in the file. */
  async written(): Promise<void> {
    if (this.#timer !== undefined) this.#write();
    await this.#writing;
  }

  #write(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#wroteAtMs = performance.now();
    this.#writing = this.#writing.then(async () => {
      try {
        await writeDurably(this.#path, JSON.stringify(this.#content()));
      } catch (error) {
        this.#log.error({ err: error }, 'what is known of GPUs could not be written');
      }
    });
  }
}
