import { describe, expect, test } from 'vitest';
import { WarmTimes } from '#scheduler/domain/warm.ts';
import type { WarmTime } from '#scheduler/domain/warm.ts';
import type { DeploymentId, WorkspaceId } from '#shared/domain/ids.ts';
import { newId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { ScaleInputReader } from '#scheduler/control/autoscaler/scale-input-reader.ts';
import type { ScaleInputReaderParts } from '#scheduler/control/autoscaler/scale-input-reader.ts';
import { aTarget } from '../../integration/tasks-fixture.ts';
import { Played } from './played.ts';
import { decideScale } from '#scheduler/control/autoscaler/decide.ts';
import type { ScaleInput } from '#scheduler/control/autoscaler/decide.ts';

const OFFICE: WarmTime = { when: '0 8 * * 1-5', timezone: 'Europe/Berlin', min: 3, until: '18:00' };
const at = (times: readonly WarmTime[], text: string) => new WarmTimes(times).at(Date.parse(text));

describe('containers by schedule', () => {
  test.each([
    // A Monday in winter: Berlin is an hour ahead of UTC.
    ['2026-11-30T06:59:59Z', 0, '2026-11-30T07:00:00Z'],
    ['2026-11-30T07:00:00Z', 3, '2026-11-30T17:00:00Z'],
    ['2026-11-30T16:59:59Z', 3, '2026-11-30T17:00:00Z'],
    ['2026-11-30T17:00:00Z', 0, '2026-12-01T07:00:00Z'],
    // From Friday evening on the next tick is on Monday.
    ['2026-12-04T17:00:00Z', 0, '2026-12-07T07:00:00Z'],
    // In summer it is two hours ahead.
    ['2026-07-06T06:00:00Z', 3, '2026-07-06T16:00:00Z'],
  ])('at %s: %i, until %s', (now, least, changes) => {
    expect(at([OFFICE], now)).toMatchObject({ least, changesAtMs: Date.parse(changes) });
  });

  test('run past midnight where the end is an earlier time of day', () => {
    const night = { when: '0 22 * * *', timezone: 'UTC', min: 1, until: '06:00' };
    expect(at([night], '2026-11-30T23:00:00Z')).toMatchObject({ least: 1, until: '06:00' });
    expect(at([night], '2026-12-01T05:59:00Z').least).toBe(1);
    expect(at([night], '2026-12-01T06:00:00Z').least).toBe(0);
  });

  test('of several times are the most that one asks for, and change when any does', () => {
    const noon = { when: '0 12 * * *', timezone: 'UTC', min: 5, until: '13:00' };
    expect(at([OFFICE, noon], '2026-11-30T12:30:00Z')).toEqual({
      least: 5,
      until: '13:00',
      changesAtMs: Date.parse('2026-11-30T13:00:00Z'),
    });
    expect(at([OFFICE, noon], '2026-11-30T13:00:00Z')).toMatchObject({ least: 3, until: '18:00' });
  });

  test('are counted anew when the answer may change, and when the clock steps back', () => {
    const times = new WarmTimes([OFFICE]);
    const answers = ['07:30', '07:31', '17:00', '06:00'].map((time) => times.at(Date.parse(`2026-11-30T${time}:00Z`)));
    expect(answers.map(({ least }) => least)).toEqual([3, 3, 0, 0]);
    expect(answers[0]).toBe(answers[1]);
  });
});

describe('a deployment with a schedule', () => {
  const MONDAY_NOON = Date.parse('2026-11-30T11:00:00Z');
  const boundsOf = (changes: Partial<Target>, nowMs = MONDAY_NOON) => {
    const inputs = new ScaleInputReader({
      clock: { nowMs: () => nowMs, monotonicMs: () => nowMs },
      maxContainers: () => 100,
      isServed: () => false,
    } as unknown as ScaleInputReaderParts);
    const plain = aTarget({ stubType: 'endpoint/deployment' });
    const autoscaler = { ...plain.config.autoscaler, minContainers: 1, maxContainers: 4, warm: [OFFICE] };
    const target = { ...plain, deploymentId: 'd' as DeploymentId, config: { ...plain.config, autoscaler }, ...changes };
    return inputs.bounds(target);
  };

  test('wants the larger of its least number and of that by schedule, as far as it may have so many', () => {
    expect(boundsOf({})).toMatchObject({ minContainers: 3, warm: { least: 3, until: '18:00' } });
    expect(boundsOf({}, Date.parse('2026-11-30T20:00:00Z'))).toMatchObject({ minContainers: 1, warm: { least: 0 } });
    expect(boundsOf({ scale: { minContainers: 0, maxContainers: 2 } }).minContainers).toBe(2);
  });

  test('wants none of them once it is stopped, superseded, or failed in its rollout', () => {
    for (const changes of [{ active: false }, { supersededBy: 2 }, { rollout: 'failed' }] as const)
      expect(boundsOf(changes).warm).toBeUndefined();
  });
});

describe('a decision', () => {
  const NOW = 1_000_000;
  const input = (changes: Partial<ScaleInput>): ScaleInput => ({
    active: true,
    tasksPerContainer: 1,
    minContainers: 0,
    maxContainers: 5,
    inFlight: 0,
    waiting: 0,
    keepWarmMs: 0,
    containers: [],
    breaker: { failures: 0, opened: 0, coolsUntilMs: 0, probe: null } as unknown as ScaleInput['breaker'],
    wantedInWindow: 0,
    ...changes,
  });

  test('is made again when the schedule changes, also for a queue without containers', () => {
    const warm = { least: 0, until: '', changesAtMs: NOW + 5000 };
    expect(decideScale(input({ warm }), NOW)).toEqual({
      kind: 'hold',
      why: 'at_target',
      wanted: 0,
      againAtMs: NOW + 5000,
    });
    expect(decideScale(input({ warm: { ...warm, changesAtMs: undefined } }), NOW)).not.toHaveProperty('againAtMs');
  });
});

test('a container whose task ended goes at once, though the schedule is to be looked at later', async () => {
  const { config } = aTarget();
  const newYear = { when: '0 0 1 1 *', timezone: 'UTC', min: 1, until: '00:01' };
  const autoscaler = { ...config.autoscaler, warm: [newYear] };
  const world = new Played();
  const queue = world.asks(newId<WorkspaceId>(), 1, 5, {
    deploymentId: newId<DeploymentId>(),
    config: { ...config, autoscaler },
  });
  await world.pass(100);
  const [entry] = world.entries.get(queue) ?? [];
  if (entry === undefined) throw new Error('none was started');
  entry.row = { ...entry.row, state: 'RUNNING' };
  world.inFlight.set(entry.row.id, 1);
  world.waiting.set(queue, 0);
  world.autoscaler.wake(queue);
  await world.pass(100);
  expect(world.stopped).toEqual([]);
  world.inFlight.delete(entry.row.id);
  world.autoscaler.attemptEnded(queue, entry.row.id);
  await world.pass(100);
  expect(world.stopped).toEqual([entry.row.id]);
});
