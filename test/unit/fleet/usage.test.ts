// Samples of containers over the link's own encoding: each side's treatment of fields that the other does not send.
import { describe, expect, test } from 'vitest';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import type { ContainerSample } from '#shared/protocol/generated/messages.ts';
import { loadLink } from '#shared/protocol/link.ts';
import { Usage } from '#scheduler/fleet/usage.ts';

const { Control } = loadLink().longshore.agent.v1.AgentLink.service;
const MACHINE = 'abcdef01' as MachineId;
const CONTAINER = 'c1' as ContainerId;

const usageHere = (): Usage =>
  new Usage({
    redis: undefined,
    keyOf: (machineId) => `usage:${machineId}`,
    clock: { nowMs: () => 10_000 },
    log: createLog({ name: 'test', level: 'silent' }),
  });

/** The scheduler's view of a sample that its agent has sent. */
async function heard(sample: ContainerSample): Promise<unknown> {
  const bytes = Control.requestSerialize({
    samples: { sampledAtMs: 1, containers: [{ containerId: CONTAINER, ...sample }] },
  });
  const { samples } = Control.requestDeserialize(bytes);
  if (samples === null || samples === undefined) throw new Error('no samples');
  const usage = usageHere();
  usage.heard(MACHINE, samples);
  return (await usage.of([MACHINE])).get(CONTAINER)?.gpu;
}

describe('GPU use on the link', () => {
  test('arrives as it was sent', async () => {
    const gpu = { devices: 2, utilizationPct: 62.5, memoryUsedBytes: 4e9, memoryTotalBytes: 16e10, powerWatts: 400.25 };
    expect(await heard({ gpu })).toEqual(gpu);
  });

  test('that is 0 is not the same as one that is not told', async () => {
    const idle = { devices: 1, utilizationPct: 0, memoryUsedBytes: 0, memoryTotalBytes: 8e9, powerWatts: 0 };
    expect(await heard({ gpu: idle })).toEqual(idle);
    expect(await heard({ gpu: { devices: 1 } })).toEqual({
      devices: 1,
      utilizationPct: null,
      memoryUsedBytes: null,
      memoryTotalBytes: null,
      powerWatts: null,
    });
  });

  test('is null without a GPU', async () => {
    expect(await heard({ gpu: null })).toBeNull();
    expect(await heard({ memoryBytes: 1 })).toBeNull();
  });

  test('that no device can have is not told', async () => {
    const gpu = { devices: 1, utilizationPct: Number.NaN, powerWatts: Number.POSITIVE_INFINITY };
    expect(await heard({ gpu })).toMatchObject({ utilizationPct: null, powerWatts: null });
    expect(await heard({ gpu: { devices: 1, powerWatts: -1 } })).toMatchObject({ powerWatts: null });
  });
});
