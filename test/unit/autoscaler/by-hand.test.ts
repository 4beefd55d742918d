import { expect, test } from 'vitest';
import type { ContainerEntry } from '../../../scheduler/fleet/containers/container-entry.ts';
import { HostBrakes } from '#scheduler/control/autoscaler/host-brake.ts';
import { ScaleInputReader } from '../../../scheduler/control/autoscaler/scale-input-reader.ts';
import type { ScaleInputReaderParts } from '../../../scheduler/control/autoscaler/scale-input-reader.ts';
import { CLOSED_BREAKER } from '../../../scheduler/control/autoscaler/breaker.ts';
import { decideScale } from '../../../scheduler/control/autoscaler/decide.ts';
import type { QueueDepth } from '../../../scheduler/stores/queues/task-queues.ts';
import { aTarget } from '../../integration/tasks-fixture.ts';

const NOW = 1_000_000_000;
const DEPTH: QueueDepth = { waiting: 5, active: 3, delayed: 0, prioritized: 0, held: 0, soon: 0 };
const IDLE: QueueDepth = { waiting: 0, active: 0, delayed: 0, prioritized: 0, held: 0, soon: 0 };

const entry = (id: string, byHand: boolean): ContainerEntry =>
  ({
    row: { id, state: 'RUNNING', createdAtMs: 0, machineId: 'm' },
    spec: { ...(byHand ? { byHand } : {}), wire: {} },
  }) as unknown as ContainerEntry;

function reader(entries: readonly ContainerEntry[]): ScaleInputReader {
  return new ScaleInputReader({
    hostBrakes: new HostBrakes(),
    containers: { ofQueue: () => entries },
    loads: { of: () => ({ inFlight: 0, idleSinceMs: 0, keepWarmMs: 0, completed: 0 }) },
    clock: { nowMs: () => NOW, monotonicMs: () => NOW },
    breakers: { of: () => CLOSED_BREAKER },
    maxContainers: () => 100,
    silentSinceMs: () => null,
  } as unknown as ScaleInputReaderParts);
}

test('scaling neither adds to nor stops containers that CreatePod made, whatever their queue has', () => {
  for (const stubType of ['pod', 'pod/run', 'sandbox']) {
    const target = aTarget({ stubType });
    const inputs = reader([entry('a', true), entry('b', true)]);
    for (const depth of [DEPTH, IDLE]) {
      const input = inputs.read(target.queue, target, depth, undefined, undefined);
      expect(decideScale(input, NOW)).toEqual({ kind: 'hold', why: 'at_target', wanted: 0 });
    }
    // The stub is gone.
    const gone = inputs.read(target.queue, undefined, IDLE, undefined, undefined);
    expect(decideScale(gone, NOW)).toMatchObject({ kind: 'hold' });
  }
});

test('a deployment of pods is scaled by its open connections', () => {
  const target = aTarget({ stubType: 'pod/deployment' });
  const input = reader([entry('a', false)]).read(target.queue, target, DEPTH, undefined, undefined);
  expect(decideScale(input, NOW)).toMatchObject({ kind: 'start', count: 2, wanted: 3 });
});
