// Sentences on a machine that is kept for a container.
import { expect, test } from 'vitest';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { leavingTexts, reservationText } from '#scheduler/api/explain/reservation.ts';
import type { Reader } from '#scheduler/api/explain/reservation.ts';
import type { ReservationHolder, ReservationRow } from '#scheduler/control/plan/reservation-report.ts';

const at = (clock: string): number => Date.parse(`2026-11-30T${clock}:00Z`);
const holder = (containerId: string, gpus: number, endsAtMs: number | null = null) =>
  ({ containerId, workspaceId: 'w-2', gpus, endsAtMs }) as ReservationHolder;
const row = (changes: Partial<ReservationRow>) =>
  ({
    market: 'H100',
    machineId: 'm-17',
    containerId: 'c-1',
    workspaceId: 'w-1',
    sinceMs: at('10:42'),
    gpus: 8,
    freeGpus: 5,
    heldBy: [],
    ...changes,
  }) as ReservationRow;
const OWN: Reader = { workspaceId: 'w-2' as WorkspaceId, isAdmin: false };
const name = ({ containerId }: ReservationHolder): string => containerId.replace(/-.*/, '');

test('it says what is kept, what is free of it, and who holds the rest until when', () => {
  const heldBy = [holder('embed-1', 1), holder('embed-2', 2)];
  expect(reservationText(row({ heldBy }), 'it', OWN, name)).toBe(
    '8 H100 of machine m-17 are reserved for it since 10:42 UTC: 5 free, 3 held by embed, which has no bounded end',
  );
  const some = [holder('embed-1', 1, at('10:50')), holder('embed-2', 1, at('10:51')), holder('embed-3', 1)];
  expect(reservationText(row({ heldBy: some }), 'container c-1', OWN, name)).toBe(
    '8 H100 of machine m-17 are reserved for container c-1 since 10:42 UTC: 5 free, 2 held by embed, which ends by 10:51 UTC, 1 held by embed, which has no bounded end',
  );
});

test('it counts those that it does not name', () => {
  const heldBy = ['a', 'b', 'c', 'd', 'e', 'f'].map((one) => holder(`${one}-1`, 1));
  const text = reservationText(row({ heldBy }), 'it', OWN, name);
  expect(text).toContain('1 held by d, which has no bounded end, and 2 more containers');
  expect(text).not.toContain('held by e');
});

test('a machine that is kept for CPU and memory has no GPUs in its sentence', () => {
  const heldBy = [holder('embed-1', 0)];
  expect(reservationText(row({ market: 'cpu', gpus: 0, freeGpus: 0, heldBy }), 'it', OWN, name)).toBe(
    'machine m-17 is reserved for it since 10:42 UTC: CPU and memory held by embed, which has no bounded end',
  );
});

test('who is no administrator is not told the names of other workspaces', () => {
  const heldBy = [holder('embed-1', 1), holder('secret-2', 2)];
  const text = (isAdmin: boolean): string =>
    reservationText(row({ heldBy }), 'it', { workspaceId: 'w-1' as WorkspaceId, isAdmin }, name);
  expect(text(false)).toBe(
    '8 H100 of machine m-17 are reserved for it since 10:42 UTC: 5 free, 3 held by another workspace, which has no bounded end',
  );
  expect(text(true)).toContain('2 held by secret,');
});

test('it counts containers that end for others', () => {
  expect(leavingTexts(0)).toEqual([]);
  expect(leavingTexts(1)).toEqual(['1 container of another workspace ends for it, or for one like it']);
  expect(leavingTexts(3)).toEqual(['3 containers of other workspaces end for it, or for one like it']);
});
