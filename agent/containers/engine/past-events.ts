// Reads an engine's memory of its events for the end of a container. Pure.
import type { EndMemory } from '../runtime.ts';

/** Events that an engine keeps in memory (moby, daemon/events: `eventsLimit`). */
const ENGINE_KEEPS = 256;
/** An older signal did not cause the end. The longest grace of a stop is shorter. */
const SIGNAL_CAUSES_MS = 10 * 60_000;
/** The engine notes a signal after it has sent it; the end that it caused may be noted before. */
const NOTED_LATE_MS = 2_000;
/** CHLD, CONT, URG and WINCH: signals that end no program by default. */
const HARMLESS: ReadonlySet<string> = new Set(['17', '18', '23', '28']);

export interface PastEvent {
  readonly type: string;
  readonly action: string;
  readonly id: string;
  readonly signal: string;
  readonly atMs: number;
}

/** An event of a line of the engine's answer; an unreadable line still counts as an event that is kept. */
export function pastEvent(line: string): PastEvent[] {
  if (line.trim() === '') return [];
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch {
    parsed = undefined;
  }
  const event = (parsed ?? {}) as {
    Type?: unknown;
    Action?: unknown;
    timeNano?: unknown;
    Actor?: { ID?: unknown; Attributes?: Readonly<Record<string, unknown>> };
  };
  return [
    {
      type: textOf(event.Type),
      action: textOf(event.Action),
      id: textOf(event.Actor?.ID),
      signal: textOf(event.Actor?.Attributes?.['signal']),
      atMs: typeof event.timeNano === 'number' ? event.timeNano / 1e6 : 0,
    },
  ];
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

/** @param events - all that the engine has in memory, the oldest first */
export function memoryOfEnd(events: readonly PastEvent[], dockerId: string): EndMemory {
  const own = events.filter(({ type, id }) => type === 'container' && id === dockerId);
  const end = own.findLast(({ action }) => action === 'die');
  const sawStart = own.some(({ action }) => action === 'start');
  const mayHaveForgotten = events.length >= ENGINE_KEEPS;
  if (end === undefined) return sawStart || mayHaveForgotten ? 'own' : 'new_engine';
  const signalled = own.some(
    ({ action, signal, atMs }) =>
      action === 'kill' &&
      !HARMLESS.has(signal) &&
      atMs - end.atMs < NOTED_LATE_MS &&
      end.atMs - atMs < SIGNAL_CAUSES_MS,
  );
  if (!signalled) return 'own';
  return sawStart || mayHaveForgotten ? 'signalled' : 'new_engine';
}
