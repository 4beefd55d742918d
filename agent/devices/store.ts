// What is known of devices beyond one run of the agent, on disk: what a host's driver lists may be unreachable at the next start, and what is broken or not proved free stays so.
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
  /** Containers that had it when it was quarantined, as the engine named them. */
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
});
export type StoredDevice = Readonly<Static<typeof StoredDevice>>;
export type StoredDevices = Readonly<Static<typeof Stored>>;

/** Undefined: nothing yet, or nothing that can be read (the tool is asked anew, and the journal has the leases). */
export async function readDevices(path: string, log: Log): Promise<StoredDevices | undefined> {
  const text = await readIfThere(path);
  if (text === undefined) return undefined;
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

export const writeDevices = (path: string, stored: StoredDevices): Promise<void> =>
  writeDurably(path, JSON.stringify(stored));
