// A machine that is kept for a container which waits, and containers that end for it, as sentences. Pure.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { ReservationHolder, ReservationRow } from '../../control/plan/reservation-report.ts';

/** Names that one sentence has. */
const MOST_NAMED = 4;
const OTHERS = 'another workspace';

/** Who reads the sentence. */
export interface Reader {
  readonly workspaceId: WorkspaceId;
  /** Whether the reader may know the names of other workspaces. */
  readonly isAdmin: boolean;
}

/**
 * `8 H100 of machine m-17 are reserved for it since 10:42 UTC: 5 free, 3 held by embed, which has no bounded end`
 * @param whom - the container for which it is reserved: `it`, or its name
 * @param nameOf - name of a holder, which a reader of another workspace is not told
 */
export function reservationText(
  { market, machineId, sinceMs, gpus, freeGpus, heldBy }: ReservationRow,
  whom: string,
  reader: Reader,
  nameOf: (holder: ReservationHolder) => string,
): string {
  const shownName = (holder: ReservationHolder): string =>
    reader.isAdmin || holder.workspaceId === reader.workspaceId ? nameOf(holder) : OTHERS;
  const what =
    gpus === 0 ? `machine ${machineId} is` : `${gpus} ${market} of machine ${machineId} ${gpus === 1 ? 'is' : 'are'}`;
  const bounded = heldBy.filter(({ endsAtMs }) => endsAtMs !== null);
  const groups = [bounded, heldBy.filter(({ endsAtMs }) => endsAtMs === null)].flatMap((some) => [
    ...Map.groupBy(some, shownName),
  ]);
  const held = groups.slice(0, MOST_NAMED).map(([name, some]) => heldText(some, name));
  const others = groups.slice(MOST_NAMED).reduce((sum, [, { length }]) => sum + length, 0);
  const parts = [
    ...(gpus === 0 ? [] : [`${freeGpus} free`]),
    ...held,
    ...(others === 0 ? [] : [`and ${others} more containers`]),
  ];
  return `${what} reserved for ${whom} since ${clockText(sinceMs)}${parts.length === 0 ? '' : `: ${parts.join(', ')}`}`;
}

/** @param count - containers that end for the one that waits */
export const leavingTexts = (count: number): string[] =>
  count === 0
    ? []
    : [
        `${count === 1 ? '1 container of another workspace ends' : `${count} containers of other workspaces end`} for it, or for one like it`,
      ];

function heldText(some: readonly ReservationHolder[], name: string): string {
  const gpus = some.reduce((sum, one) => sum + one.gpus, 0);
  const what = gpus === 0 ? 'CPU and memory' : String(gpus);
  const ends = some.map(({ endsAtMs }) => endsAtMs);
  const last = ends.includes(null) ? null : Math.max(...ends.map(Number));
  return `${what} held by ${name}, which ${last === null ? 'has no bounded end' : `ends by ${clockText(last)}`}`;
}

const clockText = (atMs: number): string => `${new Date(atMs).toISOString().slice(11, 16)} UTC`;
