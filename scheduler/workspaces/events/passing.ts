// Events that only pass: they go to the live streams that name their kind, and are stored nowhere. Their number is 0,
// and their frames have no id, so a reader who dials again does so behind the last stored event.
// Invariants: while nobody asks for a kind in a workspace, one look into a map is all that it costs. Other replicas get
// an event only while a reader there asks for it, and at most some hundred a second of each workspace. A reader is told
// how many it did not get.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { isRecord } from '#shared/json.ts';
import { eventRecordOf } from './envelope.ts';
import { matchesTypes } from './kinds.ts';
import type { PassingKind } from './kinds.ts';
import { passes } from './reads.ts';
import type { EventFilter } from './reads.ts';
import type { EventGiven } from './writer.ts';
import { newEventId } from './writer.ts';

/** A reader of passing events; `dropped` counts events that did not reach this replica. */
export interface PassingReader {
  pass(frame: Buffer): void;
  dropped(count: number): void;
}

export interface PassingParts {
  readonly nowMs: () => number;
  readonly mostCrossing?: number;
  readonly repeatMs?: number;
}

/** The way to other replicas. */
export interface PassingWay {
  readonly instance: string;
  publish(message: unknown): void;
}

/** Events of a workspace that go to other replicas within a second; the others are dropped and counted. */
const MOST_CROSSING = 200;
/** Time between two messages of a replica about the kinds that its readers ask for. */
const REPEAT_MS = 5_000;
/** Repetitions that may be missed before a replica's readers count as gone. */
const MISSED = 3;
const SECOND_MS = 1_000;

interface Wanting {
  readonly atMs: number;
  readonly keys: ReadonlySet<string>;
}

interface Crossing {
  secondMs: number;
  sent: number;
  dropped: number;
}

type Asked = EventFilter & { readonly types: readonly string[] };

const keyOf = (workspaceId: string, type: string): string => `${workspaceId} ${type}`;

/** A passing event as its streams send it. */
export function passingFrame(event: EventGiven): Buffer {
  const id = event.id ?? newEventId(event.atMs);
  const record = eventRecordOf({ ...event, id, seq: 0, storedAtMs: event.atMs });
  return Buffer.from(`event: ${event.type}\ndata: ${JSON.stringify(record)}\n\n`);
}

export class PassingEvents {
  readonly name = 'passing events';
  readonly #parts: PassingParts;
  readonly #readers = new Map<WorkspaceId, Map<PassingReader, Asked>>();
  /** Number of readers here of each workspace's kind. */
  readonly #here = new Map<string, number>();
  readonly #elsewhere = new Map<string, Wanting>();
  readonly #crossing = new Map<WorkspaceId, Crossing>();
  #way: PassingWay | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: PassingParts) {
    this.#parts = parts;
  }

  /** Reaches other replicas from now on. */
  join(way: PassingWay): void {
    this.#way = way;
  }

  start(): void {
    this.#timer = setInterval(() => this.#repeat(), this.#parts.repeatMs ?? REPEAT_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Whether somebody asks for events of that kind, here or at another replica. */
  wants(workspaceId: WorkspaceId, type: PassingKind): boolean {
    const key = keyOf(workspaceId, type);
    return this.#here.has(key) || this.#isWantedElsewhere(key);
  }

  /** @param filter - its types are full names of kinds @returns a function that ends it */
  subscribe(workspaceId: WorkspaceId, filter: Asked, reader: PassingReader): () => void {
    const readers = this.#readers.get(workspaceId) ?? new Map<PassingReader, Asked>();
    this.#readers.set(workspaceId, readers);
    readers.set(reader, filter);
    const keys = [...new Set(filter.types)].map((type) => keyOf(workspaceId, type));
    for (const key of keys) this.#here.set(key, (this.#here.get(key) ?? 0) + 1);
    this.#tellWants();
    return () => {
      if (!readers.delete(reader)) return;
      if (readers.size === 0 && this.#readers.get(workspaceId) === readers) this.#readers.delete(workspaceId);
      for (const key of keys) {
        const left = (this.#here.get(key) ?? 1) - 1;
        if (left > 0) this.#here.set(key, left);
        else this.#here.delete(key);
      }
      this.#tellWants();
    };
  }

  /** Hands an event to everybody who asks for it. Call only where {@link wants} says so. */
  tell(given: EventGiven): void {
    const event = { ...given, id: given.id ?? newEventId(given.atMs) };
    this.#hand(event);
    if (this.#way === undefined || !this.#isWantedElsewhere(keyOf(event.workspaceId, event.type))) return;
    const crossing = this.#crossingOf(event.workspaceId);
    if (crossing.sent >= (this.#parts.mostCrossing ?? MOST_CROSSING)) {
      crossing.dropped += 1;
      return;
    }
    crossing.sent += 1;
    this.#way.publish({ from: this.#way.instance, event });
  }

  /** Takes a message of another replica, or of this one. */
  heard(message: unknown): void {
    if (!isRecord(message) || typeof message['from'] !== 'string') return;
    const { from, wants, event, dropped } = message;
    if (from === this.#way?.instance) return;
    if (Array.isArray(wants)) {
      const keys = new Set(wants.filter((key) => typeof key === 'string'));
      if (keys.size === 0) this.#elsewhere.delete(from);
      else this.#elsewhere.set(from, { atMs: this.#parts.nowMs(), keys });
    } else if (isRecord(event)) {
      this.#hand(event as unknown as EventGiven);
    } else if (isRecord(dropped)) {
      const { workspaceId, count } = dropped;
      if (typeof count !== 'number') return;
      for (const reader of this.#readers.get(workspaceId as WorkspaceId)?.keys() ?? []) reader.dropped(count);
    }
  }

  /** Tells other replicas again what is asked for here: a message may have been lost. */
  tellAgain(): void {
    if (this.#here.size > 0) this.#tellWants();
  }

  #hand(event: EventGiven): void {
    const readers = this.#readers.get(event.workspaceId);
    if (readers === undefined) return;
    let frame: Buffer | undefined;
    const row = { ...event, id: event.id ?? '', seq: 0, storedAtMs: event.atMs };
    for (const [reader, filter] of readers) {
      if (matchesTypes(event.type, filter.types) && passes(row, filter)) reader.pass((frame ??= passingFrame(event)));
    }
  }

  #isWantedElsewhere(key: string): boolean {
    if (this.#elsewhere.size === 0) return false;
    const sinceMs = this.#parts.nowMs() - MISSED * (this.#parts.repeatMs ?? REPEAT_MS);
    for (const [from, { atMs, keys }] of this.#elsewhere) {
      if (atMs < sinceMs) this.#elsewhere.delete(from);
      else if (keys.has(key)) return true;
    }
    return false;
  }

  /** The workspace's share of this second. */
  #crossingOf(workspaceId: WorkspaceId): Crossing {
    const nowMs = this.#parts.nowMs();
    const known = this.#crossing.get(workspaceId) ?? { secondMs: nowMs, sent: 0, dropped: 0 };
    this.#crossing.set(workspaceId, known);
    if (nowMs - known.secondMs >= SECOND_MS) this.#begin(workspaceId, known, nowMs);
    return known;
  }

  #begin(workspaceId: WorkspaceId, crossing: Crossing, nowMs: number): void {
    const { dropped } = crossing;
    Object.assign(crossing, { secondMs: nowMs, sent: 0, dropped: 0 });
    if (dropped > 0) this.#way?.publish({ from: this.#way.instance, dropped: { workspaceId, count: dropped } });
  }

  #repeat(): void {
    this.tellAgain();
    const nowMs = this.#parts.nowMs();
    for (const [workspaceId, crossing] of this.#crossing) {
      if (nowMs - crossing.secondMs < SECOND_MS) continue;
      this.#begin(workspaceId, crossing, nowMs);
      this.#crossing.delete(workspaceId);
    }
  }

  #tellWants(): void {
    this.#way?.publish({ from: this.#way.instance, wants: [...this.#here.keys()] });
  }
}
