// What is known of devices beyond one run of the agent, on disk: what a host's driver lists may be unreachable at the next start, and what is broken or not proved free stays so.
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
  busId: Type.String(),
  index: Type.Number(),
  numaNode: Type.Number(),
  parentUuid: Type.String(),
  instance: Type.Optional(Type.Union([Type.Number(), Type.Undefined()])),
  state: Type.String(),
  why: Type.String(),
  resetAsked: Type.Boolean(),
  probeCures: Type.Optional(Type.Boolean()),
  /** Absent: an older agent wrote it, for which a quarantined device alone was one that may still be used. */
  unproven: Type.Optional(Type.Boolean()),
  /** Containers whose processes may still use it, as the engine named them. */
  lastDockerIds: Type.Array(Type.String()),
});
const Stored = Type.Object({
  version: Type.Literal(1),
  bootId: Type.String(),
  /** Of the kernel's log: what came before has been taken in. */
  sequence: Type.Number(),
  /** Place in the journal, where that is read instead, of the last line that was taken in. */
  journalCursor: Type.Optional(Type.String({ maxLength: 1000 })),
  /** Since boot: when this was written; lines of before have been taken in. */
  savedAtMs: Type.Optional(Type.Number()),
  /** `bus xid` to how often, in this boot. */
  xids: Type.Record(Type.String(), Type.Number()),
  devices: Type.Array(StoredDevice),
  /** The driver of the probes that they passed; absent: an agent wrote it that ran none. */
  probedDriver: Type.Optional(Type.String()),
  /** Errors of devices in this boot that named no recovery, and since boot until when they rest. */
  rests: Type.Optional(Type.Record(Type.String(), Type.Object({ faults: Type.Number(), restUntilMs: Type.Number() }))),
});
export type StoredDevice = Readonly<Static<typeof StoredDevice>>;
export type StoredDevices = Readonly<Static<typeof Stored>>;

/** A burst of errors is one write. */
const WRITES_APART_MS = 1000;

/** The file, with at most one write a second. A crash loses the changes of that second: the kernel's log is then read again from the place in the file. */
export class DeviceFile {
  readonly #path: string;
  readonly #log: Log;
  readonly #content: () => StoredDevices;
  #writing: Promise<void> = Promise.resolve();
  #wroteAtMs = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  /** @param content - asked for when it is written */
  constructor(stateDir: string, log: Log, content: () => StoredDevices) {
    this.#path = join(stateDir, 'gpus.json');
    this.#log = log;
    this.#content = content;
  }

  /** Undefined: nothing yet, or nothing that can be read (the tool is asked anew, and the journal has the leases). */
  async read(): Promise<StoredDevices | undefined> {
    const text = await readIfThere(this.#path);
    if (text === undefined) return undefined;
    const [log, path] = [this.#log, this.#path];
    try {
      const stored: unknown = JSON.parse(text);
      if (Value.Check(Stored, stored)) return stored;
    } catch (error) {
      log.warn({ err: error, path }, 'what was known of GPUs cannot be read: they are looked at anew');
      return undefined;
    }
    log.warn({ path }, 'what was known of GPUs has another form: they are looked at anew');
    return undefined;
  }

  /** To be written soon. */
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
