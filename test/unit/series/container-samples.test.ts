// Samples of containers before they are written: whose they are, their bounds, and a database that refuses.
import { describe, expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import type { ContainerSample__Output, Samples__Output } from '#shared/protocol/generated/messages.ts';
import { loadLink } from '#shared/protocol/link.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { ContainerSamples } from '#scheduler/fleet/series/container-samples.ts';
import { SeriesMetrics } from '#scheduler/fleet/series/metrics.ts';

const { Control } = loadLink().longshore.agent.v1.AgentLink.service;
const MACHINE = 'abcdef01' as MachineId;

/** Samples as they arrive over the link's own encoding. */
function sent(
  ids: readonly string[],
  since: object | null = { intervalMs: 5_000 },
  over: object = {},
): Samples__Output {
  const containers = ids.map((containerId) => ({ containerId, since, ...over }));
  const { samples } = Control.requestDeserialize(Control.requestSerialize({ samples: { sampledAtMs: 1, containers } }));
  if (samples === null || samples === undefined) throw new Error('no samples');
  return samples;
}

const entryOf = (id: string, machineId: string = MACHINE, workspaceId = 'w'): ContainerEntry =>
  ({
    row: { id, machineId, workspaceId, stubId: 's' },
    spec: { cpuMillicores: 2_000, memoryBytes: 1_000, gpuCount: 1 },
  }) as unknown as ContainerEntry;

function aWorld(entries: readonly ContainerEntry[], over: { readonly mostWaiting?: number } = {}) {
  let nowMs = 1_000_000;
  const clock = { nowMs: () => nowMs, monotonicMs: () => nowMs, advance: (ms: number) => (nowMs += ms) };
  const registry = new Registry();
  const written: unknown[] = [];
  const world = { isAway: false };
  const known = new Map(entries.map((entry) => [entry.row.id as string, entry]));
  const samples = new ContainerSamples({
    db: {
      query: (_sql: string, params: readonly unknown[] = []) => {
        if (world.isAway) return Promise.reject(new Error('the database is away'));
        written.push(...(JSON.parse(String(params[0])) as unknown[]));
        return Promise.resolve({ rows: [], rowCount: 0 });
      },
    },
    containers: { get: (id: ContainerId) => known.get(id) },
    clock,
    metrics: new SeriesMetrics(registry),
    log: createLog({ name: 'test', level: 'silent' }),
    ...over,
  });
  const count = async (result: string): Promise<number> =>
    Number(new RegExp(`samples_total\\{result="${result}"\\} (\\d+)`).exec(await registry.metrics())?.[1]);
  return { samples, clock, written, count, world };
}

describe('a sample', () => {
  test("has its owner and requests from the container's row, and the rest from the agent", async () => {
    const { samples, written, count, clock } = aWorld([entryOf('c1')]);
    const since = {
      intervalMs: 4_000,
      cpuMicroseconds: 2_000_000,
      diskReadBytes: 1,
      diskWriteBytes: 2,
      receivedBytes: 3,
      sentBytes: 4,
      receivedPackets: 5,
      sentPackets: 6,
    };
    const memory = { memoryRssBytes: 7, memoryVmsBytes: 8, memorySwapBytes: 9 };
    const gpu = { devices: 1, memoryUsedBytes: 10, memoryTotalBytes: 11 };
    samples.heard(MACHINE, sent(['c1'], since, { ...memory, gpu }));
    expect(samples.waiting).toBe(1);
    await samples.flush();
    expect(written).toEqual([
      {
        at_ms: clock.nowMs(),
        workspace_id: 'w',
        stub_id: 's',
        container_id: 'c1',
        interval_ms: 4_000,
        cpu_millicores: 2_000,
        memory_bytes: 1_000,
        gpu_count: 1,
        cpu_used: 500,
        memory_rss: 7,
        memory_vms: 8,
        memory_swap: 9,
        gpu_memory_used: 10,
        gpu_memory_total: 11,
        disk_read: 1,
        disk_write: 2,
        received_bytes: 3,
        sent_bytes: 4,
        received_packets: 5,
        sent_packets: 6,
      },
    ]);
    expect(await count('stored')).toBe(1);
  });

  test('that is the first of a container is left out', async () => {
    const { samples, count } = aWorld([entryOf('c1')]);
    samples.heard(MACHINE, sent(['c1'], null, { memoryBytes: 5 }));
    samples.heard(MACHINE, sent(['c1'], {}));
    expect(samples.waiting).toBe(0);
    expect([await count('unknown'), await count('over_bound')]).toEqual([0, 0]);
  });

  test('counts on the machine of its container alone, and once in five seconds', async () => {
    const { samples, count, clock } = aWorld([entryOf('c1'), entryOf('elsewhere', 'ffffffff')]);
    samples.heard(MACHINE, sent(['c1', 'elsewhere', 'nowhere', 'c1']));
    expect([samples.waiting, await count('unknown')]).toEqual([1, 3]);
    clock.advance(2_000);
    samples.heard(MACHINE, sent(['c1']));
    expect(samples.waiting).toBe(1);
    clock.advance(2_000);
    samples.heard(MACHINE, sent(['c1']));
    expect(samples.waiting).toBe(2);
  });

  test('with numbers that no container has is stored within bounds', async () => {
    const { samples, written } = aWorld([entryOf('c1')]);
    const most = Number.MAX_SAFE_INTEGER;
    const since = { intervalMs: 1, cpuMicroseconds: most, diskReadBytes: most, sentBytes: 5 };
    samples.heard(MACHINE, sent(['c1'], since, { memoryRssBytes: most }));
    await samples.flush();
    expect(written).toMatchObject([
      { interval_ms: 1, cpu_used: 10_000_000, disk_read: 2 ** 50, memory_rss: 2 ** 50, sent_bytes: 5 },
    ]);
  });
});

describe('more samples than', () => {
  const ids = (count: number): readonly string[] => Array.from({ length: count }, (_none, index) => `c${index}`);

  test('a machine may send: the rest are dropped and counted', async () => {
    const many = ids(1_200);
    const { samples, count } = aWorld(many.map((id) => entryOf(id)));
    samples.heard(MACHINE, sent(many));
    expect([samples.waiting, await count('over_bound')]).toEqual([1_000, 200]);
  });

  test('a workspace may have between two flushes: other workspaces go on', async () => {
    const machines = Array.from({ length: 6 }, (_none, index) => `m${index}`);
    const entries = machines.flatMap((machine) => ids(1_000).map((id) => entryOf(`${machine}-${id}`, machine)));
    const { samples, count, written } = aWorld([...entries, entryOf('other', 'm0', 'w2')]);
    for (const machine of machines)
      samples.heard(machine as MachineId, sent(ids(1_000).map((id) => `${machine}-${id}`)));
    expect([samples.waiting, await count('over_bound')]).toEqual([5_000, 1_000]);
    samples.heard('m0' as MachineId, sent(['other']));
    expect(samples.waiting).toBe(5_001);
    await samples.flush();
    expect(written).toHaveLength(5_001);
  });

  test('memory may hold while the database is away: the newest are dropped, the others written when it is back', async () => {
    const entries = ids(10).map((id) => entryOf(id));
    const { samples, count, clock, world, written } = aWorld(entries, { mostWaiting: 50 });
    world.isAway = true;
    for (let round = 0; round < 7; round += 1) {
      clock.advance(5_000);
      samples.heard(MACHINE, sent(ids(10)));
      await samples.flush();
    }
    expect([samples.waiting, await count('over_bound'), await count('stored')]).toEqual([50, 20, 0]);
    world.isAway = false;
    await samples.flush();
    expect([samples.waiting, written.length, await count('stored')]).toEqual([0, 50, 50]);
  });
});

test('a stop writes what waits', async () => {
  const { samples, written } = aWorld([entryOf('c1')]);
  samples.start();
  samples.heard(MACHINE, sent(['c1']));
  await samples.stop();
  expect(written).toHaveLength(1);
});

test('a sample of a neighbouring version has fields that this one does not know, or lacks some', () => {
  const [sample] = sent(['c1'], null).containers as readonly ContainerSample__Output[];
  expect(sample).toMatchObject({ memoryRssBytes: 0, memoryVmsBytes: 0, since: null });
});
