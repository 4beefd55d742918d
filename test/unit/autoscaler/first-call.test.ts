// The container that a rollout brought is spared until its first call, also with a keep-warm of 0.
import { expect, test } from 'vitest';
import type { ContainerEntry } from '../../../scheduler/fleet/containers/container-entry.ts';
import { CLOSED_BREAKER } from '../../../scheduler/control/autoscaler/breaker.ts';
import { decideScale } from '../../../scheduler/control/autoscaler/decide.ts';
import { HostBrakes } from '#scheduler/control/autoscaler/host-brake.ts';
import { ScaleInputReader } from '../../../scheduler/control/autoscaler/scale-input-reader.ts';
import type { ScaleInputReaderParts } from '../../../scheduler/control/autoscaler/scale-input-reader.ts';
import type { RolloutState } from '../../../scheduler/domain/rollouts.ts';
import type { QueueDepth } from '../../../scheduler/stores/queues/task-queues.ts';
import { aTarget } from '../../integration/tasks-fixture.ts';

const READY_MS = 1_000_000_000;
const IDLE: QueueDepth = { waiting: 0, active: 0, delayed: 0, prioritized: 0, held: 0, soon: 0 };
const ENTRY = {
  row: { id: 'a', state: 'RUNNING', createdAtMs: 0, machineId: 'm' },
  spec: { wire: {} },
} as unknown as ContainerEntry;

function decided(
  rollout: RolloutState | null,
  completed: number,
  afterMs: number,
  { keepWarmSeconds = 0, isAwaited = false } = {},
): string {
  const inputs = new ScaleInputReader({
    hostBrakes: new HostBrakes(),
    containers: { ofQueue: () => [ENTRY] },
    loads: { of: () => ({ inFlight: 0, idleSinceMs: READY_MS, keepWarmMs: 0, completed }) },
    clock: { nowMs: () => READY_MS + afterMs, monotonicMs: () => READY_MS + afterMs },
    breakers: { of: () => CLOSED_BREAKER },
    isServed: () => false,
    maxContainers: () => 100,
    silentSinceMs: () => null,
    isAwaited: () => isAwaited,
  } as unknown as ScaleInputReaderParts);
  const plain = aTarget({ stubType: 'endpoint/deployment' });
  const target = { ...plain, rollout, config: { ...plain.config, keepWarmSeconds } };
  return decideScale(inputs.read(target.queue, target, IDLE, undefined, undefined), READY_MS + afterMs).kind;
}

test.for([
  ['a container of a rollout stays', 'done', 0, 1_000, 'hold'],
  ['it leaves when no call came', 'done', 0, 31_000, 'stop'],
  ['it leaves after its first call', 'done', 1, 1_000, 'stop'],
  ['a container without a rollout leaves at once', null, 0, 1_000, 'stop'],
] as const)('%s', ([, rollout, completed, afterMs, kind]) => {
  expect(decided(rollout, completed, afterMs)).toBe(kind);
});

test('a container whose machine a larger request waits for leaves as soon as it is idle, but not before its first call', () => {
  const warm = { keepWarmSeconds: 600 };
  expect(decided(null, 1, 1_000, warm)).toBe('hold');
  expect(decided(null, 1, 1_000, { ...warm, isAwaited: true })).toBe('stop');
  expect(decided('done', 0, 1_000, { ...warm, isAwaited: true })).toBe('hold');
});
