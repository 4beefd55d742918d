import { expect, test } from 'vitest';
import { eventsOfMove } from '#scheduler/fleet/containers/container-events.ts';
import { lastStart, startTimes } from '#scheduler/api/explain/starts.ts';
import type { ContainerRow } from '#scheduler/stores/store/queries/containers.ts';
import type { EventRow } from '#scheduler/stores/store/queries/events.ts';

const CREATED = Date.parse('2026-11-29T10:00:00.000Z');
/** A container whose app takes 3 s to load, which is behind the begin of its program. */
const ready = (programMs: number): ContainerRow =>
  ({
    id: 'endpoint-1',
    epoch: 1,
    state: 'RUNNING',
    createdAtMs: CREATED,
    scheduledAtMs: CREATED + 200,
    startedAtMs: CREATED + programMs,
  }) as ContainerRow;
const PHASES = [
  { name: 'prepare', durationMs: 1_000 },
  { name: 'start', durationMs: 400 },
  { name: 'on_start', durationMs: 3_000 },
];

test.each([
  ['agrees', 1_650],
  ['is an hour behind', 1_650 - 3_600_000],
  ['is an hour ahead', 1_650 + 3_600_000],
])('the steps of a start add up to all of it, whatever the clock of the machine says: it %s', (_, programMs) => {
  const events = eventsOfMove(['STARTING'], ready(programMs), undefined, CREATED + 4_650, PHASES);
  const start = lastStart(events as unknown as readonly EventRow[], true);
  expect(start && startTimes(start)).toBe(
    'took 4.7 s: 0.2 s until it had a machine, 1.0 s image and code, 0.4 s start by the engine, 3.0 s `on_start`',
  );
});

test('a start that failed ends when the scheduler heard of it', () => {
  const row = { ...ready(0), state: 'FAILED', startedAtMs: null, endedAtMs: CREATED - 3_600_000, exitCode: null };
  const events = eventsOfMove(['STARTING'], row as ContainerRow, undefined, CREATED + 900);
  expect(events.map(({ data }) => [data['id'], data['duration_ms']])).toEqual([
    ['scheduler.backlog_wait', 200],
    ['worker.start', 700],
    ['container.startup', 900],
  ]);
});

test.each([
  [1_049, [600, 449], 'took 1.0 s: 0.6 s image and code, 0.4 s `on_start`'],
  [2_940, [960, 980, 1_000], 'took 2.9 s: 1.0 s image and code, 0.9 s start by the engine, 1.0 s `on_start`'],
  [1_950, [650, 650, 650], 'took 2.0 s: 0.7 s image and code, 0.6 s start by the engine, 0.7 s `on_start`'],
  [949, [500, 449], 'took 949 ms: 500 ms image and code, 449 ms `on_start`'],
  [999.6, [999.4], 'took 1.0 s: 1.0 s image and code'],
])('the parts of %d ms are rounded with their sum', (durationMs, parts, text) => {
  const ids =
    parts.length === 2 ? ['image.load', 'serve.ready'] : ['image.load', 'runtime.start_to_pid', 'serve.ready'];
  const steps = parts.map((ms, index) => ({ id: ids[index] ?? '', durationMs: ms }));
  expect(startTimes({ durationMs, hasOnStart: true, steps })).toBe(text);
});
