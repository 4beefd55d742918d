// Lists of tasks asked for by id are built from single reads, which see newer records
// than a list from the database; so the other filters are applied here. Pure.
import type { StubId } from '#shared/domain/ids.ts';
import type { TaskRecord } from './task-record.ts';
import type { TaskFilter } from './reads.ts';

/** Facts about a stub by which tasks are filtered. */
export interface StubFacts {
  readonly name: string;
  readonly type: string;
  readonly appId: string;
}

/** Records that pass every filter, newest first, one page of them. */
export function pickById(
  records: readonly TaskRecord[],
  stubs: ReadonlyMap<StubId, StubFacts>,
  filter: TaskFilter,
): readonly TaskRecord[] {
  const offset = filter.offset ?? 0;
  return records
    .filter((record) => fits(record, filter) && fitsStub(stubs.get(record.stubId), filter))
    .toSorted((a, b) => b.createdAtMs - a.createdAtMs || compare(b.taskId, a.taskId))
    .slice(offset, offset + filter.limit);
}

function fits(record: TaskRecord, filter: TaskFilter): boolean {
  const { createdAtMs, startedAtMs, endedAtMs } = record;
  const ranMs = startedAtMs === null || endedAtMs === null ? undefined : endedAtMs - startedAtMs;
  return (
    isOneOf(record.status, filter.statuses) &&
    isOneOf(record.stubId, filter.stubIds) &&
    isOneOf(record.containerId, filter.containerIds) &&
    isOneOf(record.deploymentId, filter.deploymentIds) &&
    isOneOf(record.failureReason, filter.failureReasons) &&
    createdAtMs >= (filter.createdFromMs ?? -Infinity) &&
    createdAtMs <= (filter.createdToMs ?? Infinity) &&
    (filter.minDurationMs === undefined || (ranMs ?? -Infinity) >= filter.minDurationMs) &&
    (filter.maxDurationMs === undefined || (ranMs ?? Infinity) <= filter.maxDurationMs) &&
    isBefore(record, filter.before)
  );
}

function isBefore(record: TaskRecord, before: TaskFilter['before']): boolean {
  if (before === undefined) return true;
  if (record.createdAtMs !== before.createdAtMs) return record.createdAtMs < before.createdAtMs;
  return record.taskId < before.taskId;
}

function fitsStub(stub: StubFacts | undefined, { stubNames, stubTypes, appId }: TaskFilter): boolean {
  return (
    isOneOf(stub?.name, stubNames) && isOneOf(stub?.type, stubTypes) && (appId === undefined || stub?.appId === appId)
  );
}

/** Whether the value is in the list; without a list every value passes. */
const isOneOf = (value: string | null | undefined, wanted: readonly string[] | undefined): boolean =>
  wanted === undefined || (value !== undefined && value !== null && wanted.includes(value));

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
