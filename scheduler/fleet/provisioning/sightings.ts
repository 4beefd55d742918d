// A provider's listing against the rows: which instance belongs to which row, which are one too many, and which belong
// to none. Pure.
import type { Instance } from '../../domain/provisioning.ts';
import { isOver } from './states.ts';
import type { ProvisionedRow } from './states.ts';

export interface Sighting {
  /** The instance of each row that has one in the listing. */
  readonly ofRow: ReadonlyMap<string, Instance>;
  /** Instances beside the row's own that carry the same request id; they cost money and serve nothing. */
  readonly extra: readonly Instance[];
  /** Instances of this installation without a live row, of whichever provider. */
  readonly orphans: readonly Instance[];
}

const isThere = ({ state }: Instance): boolean => state === 'pending' || state === 'running';

/**
 * @param rows - of the provider that was listed
 * @param others - of other providers: those of one account list each other's instances
 */
export function sightingOf(
  listed: readonly Instance[],
  rows: readonly ProvisionedRow[],
  others: readonly ProvisionedRow[],
): Sighting {
  const live = rows.filter((row) => !isOver(row));
  const byInstance = new Map(live.flatMap((row) => (row.instanceId === null ? [] : [[row.instanceId, row] as const])));
  const byRequest = new Map(live.map((row) => [row.requestId, row]));
  const foreign = new Set(others.filter((row) => !isOver(row)).map(({ requestId }) => requestId));
  const candidates = new Map<string, Instance[]>();
  const orphans: Instance[] = [];
  for (const instance of listed) {
    // The id that `create` answered counts more than a tag, which a program may have set wrong.
    const row = byInstance.get(instance.instanceId) ?? byRequest.get(instance.requestId);
    if (row === undefined) {
      if (isThere(instance) && !foreign.has(instance.requestId)) orphans.push(instance);
      continue;
    }
    candidates.set(row.requestId, [...(candidates.get(row.requestId) ?? []), instance]);
  }
  const ofRow = new Map<string, Instance>();
  const extra: Instance[] = [];
  for (const [requestId, instances] of candidates) {
    const kept = keptOf(instances, byRequest.get(requestId)?.instanceId ?? null);
    ofRow.set(requestId, kept);
    extra.push(...instances.filter((instance) => instance !== kept && isThere(instance)));
  }
  return { ofRow, extra, orphans };
}

/** The row's own instance; where none is known, one that runs, the first by its id. */
function keptOf(instances: readonly Instance[], knownId: string | null): Instance {
  const ordered = instances.toSorted((a, b) => (a.instanceId < b.instanceId ? -1 : 1));
  const known = ordered.find((instance) => instance.instanceId === knownId);
  const [first] = ordered;
  if (first === undefined) throw new RangeError('a row has instances or none');
  return known ?? ordered.find(isThere) ?? first;
}

/** An instance that should not be: when it was first seen, and in how many complete listings. */
export interface Unwanted {
  readonly instance: Instance;
  readonly sinceMs: number;
  readonly sightings: number;
}

/** Sightings and time after which an instance that should not be is terminated. */
export const UNWANTED = { sightings: 2, graceMs: 60_000 } as const;

/** @returns unwanted instances of this listing, with their age; others are forgotten */
export function unwantedAfter(
  before: ReadonlyMap<string, Unwanted>,
  instances: readonly Instance[],
  nowMs: number,
): ReadonlyMap<string, Unwanted> {
  return new Map(
    instances.map((instance) => {
      const known = before.get(instance.instanceId);
      const sightings = (known?.sightings ?? 0) + 1;
      return [instance.instanceId, { instance, sinceMs: known?.sinceMs ?? nowMs, sightings }];
    }),
  );
}

export const isDue = ({ sinceMs, sightings }: Unwanted, nowMs: number): boolean =>
  sightings >= UNWANTED.sightings && nowMs - sinceMs >= UNWANTED.graceMs;
