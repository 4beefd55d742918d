// The audit of the machine in the kill rounds, on an engine that passes GPUs.
// Planted faults are found, and a machine without faults has no findings.
/* oxlint-disable no-empty-pattern */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { LABELS } from '#agent/containers/runtime.ts';
import { MachineWatch } from '../../bench/chaos/machine.ts';
import { HandlerRecords } from '../../bench/chaos/runs.ts';
import { gpuHost, gpuUuid } from '../helpers/gpus.ts';
import type { SimulatedHost } from '../helpers/hosts/host.ts';
import { SimulatedNetwork, whyNoHosts } from '../helpers/hosts/network.ts';
import { docker, test as base } from '../helpers/services.ts';

const MACHINE = 'aaaaaaaa';

interface World {
  readonly host: SimulatedHost;
  readonly image: string;
  /** Writes the agent's journal with these leases. */
  leased(...leases: readonly { readonly containerId: string; readonly gpuUuids: readonly string[] }[]): void;
  /** A container as the agent would have started it. */
  run(containerId: string, gpuUuids: readonly string[]): Promise<string>;
  /** Looks from now on; an unpaired container or lease is a finding at the second look. */
  watch(): Promise<MachineWatch>;
}

const test = base.extend('world', { scope: 'file' }, async ({}, { onCleanup }): Promise<World> => {
  const { baseImage: image } = await docker();
  const network = await SimulatedNetwork.up(1, image, gpuHost);
  onCleanup(() => network.down());
  const [host] = network.hosts;
  if (host === undefined) throw new Error('there is no host');
  const state = join(host.directory, 'agent');
  mkdirSync(state);
  const journalPath = join(state, 'journal.json');
  return {
    host,
    image,
    leased: (...leases) => {
      const entries = leases.map((lease) => ({ ...lease, epoch: 1, stage: 'created' }));
      writeFileSync(journalPath, JSON.stringify({ version: 1, entries }));
    },
    run: async (containerId, gpuUuids) => {
      const made = await host.docker.createContainer({
        Image: image,
        Cmd: ['sleep', '600'],
        Labels: {
          [LABELS.managed]: '1',
          [LABELS.machine]: MACHINE,
          [LABELS.container]: containerId,
          [LABELS.epoch]: '1',
        },
        HostConfig: {
          Init: true,
          NetworkMode: 'none',
          DeviceRequests: [{ Driver: 'nvidia', DeviceIDs: [...gpuUuids], Capabilities: [['gpu']] }],
        },
      });
      await made.start();
      return made.id.slice(0, 12);
    },
    watch: () =>
      MachineWatch.start({
        engine: host.docker,
        image,
        machineId: MACHINE,
        network: 'ls-none',
        journalPath,
        patienceMs: 0,
        emptyMs: 0,
      }),
  };
});

describe.skipIf(whyNoHosts !== undefined)('the audit of a machine', () => {
  test('finds planted double leases, orphans, leases without a container, and strangers that were touched', async ({
    world,
  }) => {
    const { host } = world;
    const [first, second] = [gpuUuid(0), gpuUuid(1)];
    world.leased({ containerId: 'one', gpuUuids: [first] }, { containerId: 'two', gpuUuids: [second] });
    await world.run('one', [first]);
    const two = await world.run('two', [second]);
    const watch = await world.watch();
    await watch.check();
    expect(watch.findings).toEqual([]);

    // The engine counts here, not the journal.
    await world.run('three', [first]);
    world.leased(
      { containerId: 'one', gpuUuids: [first] },
      { containerId: 'three', gpuUuids: [second] },
      { containerId: 'four', gpuUuids: [second] },
    );
    await watch.end();
    await watch.check();
    expect(watch.findings).toEqual(
      expect.arrayContaining([
        `device_twice: ${first} is with three and one`,
        `lease_twice: ${second} is leased to three (epoch 1) and four (epoch 1)`,
        `not_its_lease: three (epoch 1) has ${first}, and ${second} is leased to it`,
        `orphan: two (epoch 1) (${two}) runs, and the journal does not know it`,
        `lease_left: four (epoch 1) has ${second} by the journal, and is not there`,
      ]),
    );
    expect(watch.counts).toMatchObject({ containers: 3, leases: 3, gpus: 3 });

    // There is no demand any more, and the agent says that it has ended.
    await watch.untilEmpty();
    expect(watch.findings).toContain(`orphan: two (${two}) is left`);
    expect(watch.findings).toContain(`lease_left: four is in the journal, with ${second}`);
    const [stranger] = await host.containers([`${LABELS.machine}=ffffffff`]);
    await host.docker.getContainer(stranger?.Id ?? '').restart({ t: 0 });
    await watch.untilGone();
    expect(watch.findings.filter((text) => text.startsWith('left_behind'))).toHaveLength(3);
    expect(watch.findings.filter((text) => text.startsWith('stranger_touched'))).toEqual([
      'stranger_touched: a container that was another machine’s does not run on as it did',
    ]);
  });

  test('finds that a volume was emptied under the handlers', ({ world }) => {
    const path = join(world.host.directory, 'runs.jsonl');
    const records = new HandlerRecords(path);
    expect(records.lost()).toBeUndefined();
    writeFileSync(path, `${JSON.stringify({ n: 1, taskId: 't', event: 'began' })}\n`);
    expect(records.lost()).toBeUndefined();
    expect(records.read()).toEqual([{ n: 1, taskId: 't', event: 'began' }]);
    writeFileSync(path, '');
    expect(records.lost()).toMatch(/^volume_lost: .* had 37 bytes and has 0$/);
  });
});
