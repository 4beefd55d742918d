import { expect, test } from 'vitest';
import type { EventRecord } from '#shared/api/rest/events.ts';
import { phasesOf, startsOf } from '../../../console/parts/starts.ts';

const event = (containerId: string, id: string, ms: number, more: Partial<EventRecord> = {}): EventRecord =>
  ({
    type: 'container.lifecycle',
    container_id: containerId,
    event_id: id,
    duration_ms: ms,
    success: true,
    timestamp: '2026-03-02T10:00:00Z',
    end_time: '2026-03-02T10:00:00Z',
    attrs: { epoch: '1' },
    ...more,
  }) as EventRecord;

test('events of a start are put together, the newest start first, and a failed one says why', () => {
  const starts = startsOf([
    event('a', 'image.load', 3_000),
    event('a', 'serve.ready', 500),
    event('a', 'container.startup', 4_000),
    event('b', 'container.startup', 900, { success: false, reason: 'no module', end_time: '2026-03-02T11:00:00Z' }),
    // The same container, placed again.
    event('a', 'container.startup', 2_000, { attrs: { epoch: '2' }, end_time: '2026-03-02T09:00:00Z' }),
    // A start that is under way is none yet.
    event('c', 'image.load', 10),
  ]);
  expect(starts.map(({ containerId, isReady, tookMs, why }) => [containerId, isReady, tookMs, why])).toEqual([
    ['b', false, 900, 'no module'],
    ['a', true, 4_000, ''],
    ['a', true, 2_000, ''],
  ]);
  expect([...(starts[1]?.phases ?? [])]).toEqual([
    ['image.load', 3_000],
    ['serve.ready', 500],
  ]);
});

test('phases are told by how long half of the starts take, the longest first', () => {
  const starts = startsOf(
    [1, 2, 3, 100].flatMap((seconds) => [
      event(`c${seconds}`, 'image.load', seconds * 1_000),
      event(`c${seconds}`, 'serve.ready', 5_000),
      event(`c${seconds}`, 'container.startup', seconds * 1_000 + 5_000),
    ]),
  );
  const { all, phases } = phasesOf(starts);
  expect(all).toEqual({ count: 4, p50Ms: 7_000, p95Ms: 105_000 });
  expect(phases.map(({ id, p50Ms, p95Ms }) => [id, p50Ms, p95Ms])).toEqual([
    ['serve.ready', 5_000, 5_000],
    ['image.load', 2_000, 100_000],
  ]);
  expect(phasesOf([])).toEqual({ all: { count: 0, p50Ms: 0, p95Ms: 0 }, phases: [] });
});
