// Builds of images by several scheduler processes on one database: one build for each definition, taken over from a
// process that died; images that something uses stay.
import { PassThrough } from 'node:stream';
import type { Duplex } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId, newInstanceId } from '#shared/domain/ids.ts';
import type { DeploymentId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { encodeEvent } from '#shared/protocol/build-events.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import { Registry } from '#shared/metrics.ts';
import { Builds } from '#scheduler/fleet/builds/builds.ts';
import type { BuildMessage, OrderedBuild } from '#scheduler/fleet/builds/builds.ts';
import { ImageCollector } from '#scheduler/fleet/builds/collector.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { insertDeployment } from '#scheduler/stores/store/queries/deployments.ts';
import { imageById, imagePlaces } from '#scheduler/stores/store/queries/images.ts';
import { insertStub } from '#scheduler/stores/store/queries/stubs.ts';
import { waitFor } from '../helpers/services.ts';
import { KINDS, aDb, aStub, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const MACHINE = 'aaaa1111' as MachineId;
const NOTHING = {
  pythonVersion: '',
  pythonPackages: [],
  systemPackages: [],
  commands: [] as string[],
  existingImageUri: '',
  buildSteps: [],
  envVars: [],
  dockerfile: '',
  buildCtxObject: '',
  secrets: [],
  gpu: '',
  machineGpu: '',
  pool: '',
  ignorePython: false,
  existingImageCreds: null,
  forceRebuild: false,
  imageId: '',
};
const command = (text: string) => ({ ...NOTHING, commands: [text] });

function aMachine(id: MachineId, over: object = {}): Machine {
  return {
    row: {
      id,
      poolName: 'default',
      poolWorkspaceId: null,
      poolSettings: { requiresPoolSelector: false },
      intent: 'active',
      hostDrainUntilMs: null,
      systemCordon: false,
    },
    health: 'READY',
    inventory: { builds: true, gpus: [], builtImages: [] },
    conditions: [],
    sessionId: 'session',
    ...over,
  } as unknown as Machine;
}

/** A scheduler process with an agent that the test plays. */
function aProcess(opened: OpenedDb, machines: readonly Machine[] = [aMachine(MACHINE)]) {
  const orders: { readonly machineId: MachineId; readonly order: OrderedBuild; readonly agent: Duplex }[] = [];
  const silentMachines = new Set<MachineId>();
  const builds = new Builds({
    db: opened.db,
    instance: newInstanceId(),
    machines: { all: () => machines },
    streams: {
      open: async (machineId, order, signal) => {
        if (silentMachines.has(machineId)) throw new AppError('machine_silent', `machine ${machineId} is silent`);
        const bytes = new PassThrough();
        signal.addEventListener('abort', () => bytes.destroy());
        orders.push({ machineId, order, agent: bytes });
        return Promise.resolve(bytes);
      },
    },
    objects: { use: () => Promise.resolve(undefined) },
    cpuWorkAllowed: () => true,
    pythonProblem: (_work, python) => (python === 'python3.12' ? 'no machine has Python 3.12' : undefined),
    registry: new Registry(),
    log: silent,
  });
  const follow = (
    workspaceId: WorkspaceId,
    request: ReturnType<typeof command>,
    signal = new AbortController().signal,
  ) => {
    const messages: BuildMessage[] = [];
    const done = (async () => {
      for await (const message of builds.build(workspaceId, request, signal)) messages.push(message);
      return messages.at(-1);
    })();
    return { messages, done };
  };
  const ordered = (count = 1) =>
    waitFor(() => (orders.length >= count ? orders[count - 1] : undefined), 'a build is ordered');
  return { builds, orders, follow, ordered, silentMachines };
}
const say = (agent: Duplex, ...events: readonly BuildEvent[]): void => {
  for (const event of events) agent.push(encodeEvent(event));
};
const linesOf = (messages: readonly BuildMessage[]): readonly string[] =>
  messages.flatMap((message) => (message.kind === 'line' && !message.isNote ? [message.text] : []));

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let workspaceId: WorkspaceId;
  beforeAll(async () => {
    opened = await aDb(kind);
    workspaceId = (await aWorkspace(opened.db)).id;
  });
  afterAll(() => opened.stop());

  test('a build on a base image goes to a machine that can have that image', async () => {
    const saying = (id: string, basePythons: string[]) =>
      aMachine(id as MachineId, {
        inventory: { builds: true, gpus: [], builtImages: [], basePythons, basePythonsKnown: true },
      });
    const others = Array.from({ length: 6 }, (_, index) => saying(`cccc000${index}`, index % 2 === 0 ? [] : ['3.11']));
    const process = aProcess(opened, [...others, saying('dddd0000', ['3.13'])]);
    const { done } = process.follow(workspaceId, { ...command('python'), pythonVersion: 'python3.13' });
    const { agent, machineId } = await process.ordered();
    expect(machineId).toBe('dddd0000');
    say(agent, { built: 'sha256:1', bytes: 7 });
    expect(await done).toMatchObject({ kind: 'done', errMsg: '' });
  });

  test('callers of one definition follow one build, here and at another process', async () => {
    const [here, elsewhere] = [aProcess(opened), aProcess(opened)];
    const first = here.follow(workspaceId, command('one'));
    const { agent, order } = await here.ordered();
    const second = here.follow(workspaceId, command('one'));
    const third = elsewhere.follow(workspaceId, command('one'));
    say(agent, { step: 1, of: 2, title: 'FROM x' }, { text: 'hello' });
    await waitFor(() => linesOf(third.messages).includes('hello'), 'the other process has the line');
    say(agent, { text: 'end' }, { built: 'sha256:1', bytes: 7 });
    const lines = ['Step 1/2: FROM x', 'hello', 'end'];
    for (const { messages, done } of [first, second, third]) {
      expect(await done).toEqual({ kind: 'done', imageId: order.image, errMsg: '' });
      expect(linesOf(messages).filter((line) => !line.startsWith('building on'))).toEqual(
        expect.arrayContaining(lines.slice(0, 2)),
      );
    }
    expect(linesOf(first.messages)).toEqual(lines);
    expect([here.orders.length, elsewhere.orders.length]).toEqual([1, 0]);
    expect(await imagePlaces(opened.db, [order.image ?? ''])).toEqual([
      { imageId: order.image, machineId: MACHINE, sizeBytes: 7 },
    ]);
    const again = here.follow(workspaceId, command('one'));
    expect(await again.done).toMatchObject({ errMsg: '' });
    expect(here.orders).toHaveLength(1);
  });

  test('a failure has the words of the agent, and the next call builds again', async () => {
    const process = aProcess(opened);
    const failing = process.follow(workspaceId, command('failing'));
    say((await process.ordered()).agent, { failed: 'step 2 of 2 failed', step: 'RUN failing' });
    expect(await failing.done).toEqual({ kind: 'done', imageId: '', errMsg: 'step 2 of 2 failed' });
    const cut = process.follow(workspaceId, command('failing'));
    (await process.ordered(2)).agent.end();
    expect(await cut.done).toMatchObject({ errMsg: expect.stringContaining('begin it again') as string });
    const third = process.follow(workspaceId, command('failing'));
    say((await process.ordered(3)).agent, { built: 'sha256:1', bytes: 7 });
    expect(await third.done).toMatchObject({ errMsg: '' });
  });

  test('a build of a process that died is begun by another, which its end cannot disturb', async () => {
    const [dead, other] = [aProcess(opened), aProcess(opened)];
    const first = dead.follow(workspaceId, command('taken over'));
    const { order } = await dead.ordered();
    await opened.db.query(`update images set renewed_at = now() - interval '1 minute' where id = $1`, [order.image]);
    const second = other.follow(workspaceId, command('taken over'));
    const { agent } = await other.ordered();
    expect(await first.done).toMatchObject({ errMsg: expect.stringContaining('begin it again') as string });
    say(agent, { built: 'sha256:1', bytes: 7 });
    expect(await second.done).toMatchObject({ errMsg: '' });
    expect(await imageById(opened.db, workspaceId, order.image ?? '')).toMatchObject({ state: 'READY' });
  });

  test('a process that stops frees its builds', async () => {
    const [stopping, other] = [aProcess(opened), aProcess(opened)];
    const first = stopping.follow(workspaceId, command('stopped'));
    await stopping.ordered();
    await stopping.builds.stop();
    await first.done;
    const second = other.follow(workspaceId, command('stopped'));
    say((await other.ordered()).agent, { built: 'sha256:1', bytes: 7 });
    expect(await second.done).toMatchObject({ errMsg: '' });
  });

  test('a workspace builds four at once, and no machine is a sentence', async () => {
    const own = (await aWorkspace(opened.db)).id;
    const process = aProcess(opened);
    const abort = new AbortController();
    for (let at = 1; at <= 4; at += 1) {
      process.follow(own, command(`many ${at}`), abort.signal).done.catch(() => undefined);
      await process.ordered(at);
    }
    const fifth = await process.follow(own, command('many 5')).done;
    expect(fifth).toMatchObject({ errMsg: expect.stringContaining('4 builds at once') as string });
    await process.builds.stop();
    const none = await aProcess(opened, []).follow(own, { ...command('x'), gpu: 'H100', pool: 'p' }).done;
    expect(none).toMatchObject({ errMsg: expect.stringMatching(/no machine with GPU H100 in pool p/) as string });
  });

  test('a silent machine is passed over', async () => {
    const machines = [aMachine(MACHINE), aMachine('bbbb2222' as MachineId)];
    const process = aProcess(opened, machines);
    const probe = process.follow(workspaceId, command('which'));
    const { machineId } = await process.ordered();
    process.silentMachines.add(machineId);
    say((await process.ordered()).agent, { built: 'sha256:1', bytes: 7 });
    await probe.done;
    const next = process.follow(workspaceId, command('passed over'));
    const second = await process.ordered(2);
    expect(second.machineId).not.toBe(machineId);
    say(second.agent, { built: 'sha256:1', bytes: 7 });
    expect(await next.done).toMatchObject({ errMsg: '' });
  });

  test('an image counts where a machine that may run the app has it', async () => {
    const process = aProcess(opened);
    const image = process.follow(workspaceId, command('where'));
    say((await process.ordered()).agent, { built: 'sha256:1', bytes: 7 });
    await image.done;
    const request = { ...command('where'), imageId: '' };
    expect(await process.builds.verify(workspaceId, request)).toMatchObject({ exists: true });
    const lost = aProcess(opened, [aMachine(MACHINE, { health: 'LOST' })]);
    expect(await lost.builds.verify(workspaceId, request)).toMatchObject({ exists: false });
    expect(await process.builds.verify(workspaceId, { ...request, gpu: 'H100' })).toMatchObject({ exists: false });
    const other = (await aWorkspace(opened.db)).id;
    expect(await process.builds.verify(other, request)).toMatchObject({ exists: false });
    expect(await process.builds.verify(workspaceId, { ...request, forceRebuild: true })).toMatchObject({
      exists: false,
    });
  });

  test('a build whose process died ends without another call, and its image can be deleted', async () => {
    const process = aProcess(opened);
    const lost = process.follow(workspaceId, command('lost'));
    const { order } = await process.ordered();
    const image = order.image ?? '';
    const collector = new ImageCollector({
      db: opened.db,
      machines: { all: () => [] },
      days: 30,
      log: silent,
    });
    await collector.endLost();
    expect((await imageById(opened.db, workspaceId, image))?.state).toBe('BUILDING');
    expect(await collector.delete(workspaceId, image)).toBe(false);
    // The process gives no sign of life any more.
    await opened.db.query(
      `update images set owner = 'gone', renewed_at = now() - interval '31 seconds' where id = $1`,
      [image],
    );
    await collector.endLost();
    expect(await imageById(opened.db, workspaceId, image)).toMatchObject({ state: 'PENDING', isOwned: false });
    expect(await collector.delete(workspaceId, image)).toBe(true);
    await lost.done;
  });

  test('an old image that no deployment has is removed, also from machines that connect later', async () => {
    const process = aProcess(opened);
    const names: string[] = [];
    for (const text of ['kept', 'unused']) {
      const image = process.follow(workspaceId, command(text));
      const { agent, order } = await process.ordered(names.length + 1);
      say(agent, { built: 'sha256:1', bytes: 7 });
      await image.done;
      names.push(order.image ?? '');
    }
    const [kept = '', unused = ''] = names;
    const model = await aStub(opened.db, workspaceId, 'model');
    const stub = await insertStub(opened.db, {
      ...model,
      id: newId(),
      name: 'with image',
      configHash: kept,
      config: { imageId: kept },
    });
    await insertDeployment(opened.db, {
      id: newId<DeploymentId>(),
      workspaceId,
      appId: stub.appId,
      stubId: stub.id,
      name: 'with-image',
      stubType: stub.type,
      subdomain: 'with-image',
      imageDigest: '',
    });
    await opened.db.query(`update images set used_at = now() - interval '40 days' where id = any ($1::text[])`, [
      names,
    ]);
    const removed: [MachineId, readonly string[]][] = [];
    const collector = new ImageCollector({
      db: opened.db,
      machines: { all: () => [aMachine(MACHINE)] },
      days: 30,
      log: silent,
    });
    collector.onRemove((machineId, images) => removed.push([machineId, images]) > 0);
    await collector.round();
    expect(removed).toEqual([[MACHINE, [unused]]]);
    expect(await collector.delete(workspaceId, kept)).toBe(false);
    const built = { builds: true, gpus: [], builtImages: [unused, kept] };
    collector.machineChanged(aMachine(MACHINE, { inventory: built, sessionId: 'next' }));
    await waitFor(() => removed.length === 2, 'the machine is told');
    expect(removed[1]).toEqual([MACHINE, [unused]]);
    collector.machineChanged(aMachine(MACHINE, { inventory: { ...built, builtImages: [] }, sessionId: 'emptied' }));
    await waitFor(async () => (await imagePlaces(opened.db, [kept])).length === 0, 'the image is known to be gone');
  });
});
