// Rollouts on a real scheduler with real stores of both kinds and a simulated machine, as callers see them; and the
// leader's loop on rows, at its limit and after a change of the leader.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { RolloutLoop } from '#scheduler/control/rollouts/loop.ts';
import { LoopMetrics } from '#scheduler/cluster/loop-metrics.ts';
import { Registry } from '#shared/metrics.ts';
import { newId, queueNameOf } from '#shared/domain/ids.ts';
import { turnText } from '#shared/domain/pull-turns.ts';
import type { DeploymentId, QueueName } from '#shared/domain/ids.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { deploymentById, insertDeployment, listDeployments } from '#scheduler/stores/store/queries/deployments.ts';
import type { DeploymentRow } from '#scheduler/stores/store/queries/deployments.ts';
import { servingAmong, servingIds } from '#scheduler/stores/store/queries/rollouts.ts';
import { raiseFence } from '#scheduler/stores/store/queries/leadership.ts';
import { runCommand } from '../helpers/command-line.ts';
import { waitFor } from '../helpers/programs.ts';
import { SimulatedAgent, echo } from '../helpers/simulated-agent.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { KINDS, aDb, aStub, aWorkspace, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';
import { aPlatform, WITH_FIELDS } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

/** Long enough for a loaded machine; every wait ends as soon as its condition holds. */
const PATIENCE_MS = 30_000;

interface Version {
  readonly id: string;
  readonly stubId: string;
  readonly version: number;
  readonly rollout: Json;
}

describe.each(['servers', 'embedded'] as const)('rollouts on %s', (stores) => {
  let platform: Platform;
  let agent: SimulatedAgent;
  /** Starts that the test holds back, by stub: each ends with the text that it is given. */
  const held = new Map<string, PromiseWithResolvers<string>>();
  let count = 0;

  beforeAll(async () => {
    platform = await aPlatform({}, stores);
    const by = { token: platform.admin.token };
    const made = await platform.gateway('POST /machines', { poolName: 'rolled' }, by);
    agent = new SimulatedAgent({
      addresses: () => [platform.agentAddress],
      joinToken: String(made.json['agentUpstreamToken']),
      cpuMillicores: 64_000,
      memoryBytes: 64 * 1024 ** 3,
      handle: echo,
      start: async (containerId) =>
        (await [...held].find(([stubId]) => containerId.includes(stubId))?.[1].promise) ?? '',
    });
    await agent.start();
  });
  afterAll(async () => {
    for (const { resolve } of held.values()) resolve('');
    await agent.stop();
    await platform.stop();
  });

  /** Deploys another recipe under the name. @param how - `holds`: its starts wait for the test */
  const deploy = async (
    name: string,
    how: { readonly holds?: boolean; readonly now?: boolean; readonly cpu?: number } = {},
  ): Promise<Version> => {
    const stubId = await platform.stub({ env: [`N=${(count += 1)}`], keepWarmSeconds: 600, cpu: how.cpu ?? 100 });
    if (how.holds === true) held.set(stubId, Promise.withResolvers());
    const rollout = how.now === true ? 'now' : 'auto';
    const { json } = await platform.gateway('POST /stubs/deploy', { stubId, name, rollout }, WITH_FIELDS);
    expect(json).toMatchObject({ ok: true });
    return {
      id: String(json['deploymentId']),
      stubId,
      version: Number(json['version']),
      rollout: json['rollout'] as Json,
    };
  };
  /** The stub whose container answered a call of the name. */
  const answeredBy = async (path: string): Promise<string> => {
    const { status, json, text } = await platform.call(`POST /endpoint/${path}`, {});
    expect([status, text]).toEqual([200, text]);
    return String(json['containerId']);
  };
  const callsReach = async (name: string, { stubId }: Version): Promise<void> => {
    expect(await answeredBy(name)).toContain(stubId);
    expect(await answeredBy(`${name}/latest`)).toContain(stubId);
  };
  const rolloutOf = async ({ id }: Version): Promise<Json> =>
    (await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}/${id}`)).json['rollout'] as Json;
  const explained = async ({ id }: Version): Promise<Json> =>
    (await platform.call(`GET /api/v1/explain/${platform.own.workspaceId}/${id}`)).json;
  const ends = (version: Version, state: string): Promise<Json> =>
    waitFor(
      async () => {
        const rollout = await rolloutOf(version);
        return rollout['state'] === state && rollout;
      },
      `the rollout is ${state}`,
      PATIENCE_MS,
    );
  const starts = ({ stubId }: Version): Promise<string> =>
    waitFor(() => agent.present.find((id) => id.includes(stubId)), 'a container of it is there', PATIENCE_MS);
  const verb = async (line: string): Promise<void> =>
    expect((await platform.gateway(line)).json).toEqual({ ok: true, errMsg: '' });
  /** A name whose first version has a ready container. */
  const served = async (name: string, cpu?: number): Promise<Version> => {
    const first = await deploy(name, cpu === undefined ? {} : { cpu });
    expect(first.rollout).toEqual({ state: 'done', why: '', since: null, until: null });
    await callsReach(name, first);
    return first;
  };
  const listed = async (name: string): Promise<unknown[]> =>
    (
      (await platform.gateway(`GET /deployments?filters=name=${name}`, undefined, WITH_FIELDS)).json[
        'deployments'
      ] as Json[]
    ).map((row) => [row['version'], row['serving'], row['rollout']]);

  test('calls of the name stay with the ready version until the new one has a ready container', async () => {
    const first = await served('moves');
    const second = await deploy('moves', { holds: true });
    expect(second.rollout).toMatchObject({ state: 'waiting', why: '', since: expect.any(String) });
    const { since, until } = second.rollout;
    expect(Date.parse(String(until)) - Date.parse(String(since))).toBe(15 * 60_000);
    // A container starts without a call, although the recipe wants none.
    await starts(second);
    await callsReach('moves', first);
    expect(await explained(second)).toMatchObject({
      waits_for: '1 container to be ready',
      details: expect.arrayContaining(['calls of moves go on to v1 until a container of this version is ready']),
      next_steps: [
        '`longshore deployment rollback moves v2` moves calls of moves here at once',
        expect.stringMatching(/^`longshore explain \S+` says what its start waits for/),
      ],
    });
    expect((await explained(first))['details']).toContain(
      'v2 takes the calls of moves when a container of it is ready',
    );
    expect(await listed('moves')).toEqual([
      [2, false, 'waiting'],
      [1, true, ''],
    ]);
    held.get(second.stubId)?.resolve('');
    expect(await ends(second, 'done')).toMatchObject({ why: 'a container of it is ready', until: null });
    await callsReach('moves', second);
    // The older version is still there under its number.
    expect(await answeredBy('moves/v1')).toContain(first.stubId);
    expect(await listed('moves')).toEqual([
      [2, true, 'done'],
      [1, false, ''],
    ]);
  });

  test('a start that fails leaves the older version serving, and a start of the new one tries again', async () => {
    const first = await served('fails');
    const second = await deploy('fails', { holds: true });
    const before = held.get(second.stubId);
    before?.resolve('ImportError: no module named torch');
    const rollout = await ends(second, 'failed');
    expect(rollout['why']).toMatch(
      /^the start of endpoint-\S+ failed \(user_error\): ImportError: no module named torch$/,
    );
    await callsReach('fails', first);
    const { details, next_steps: steps, state, summary } = await explained(second);
    expect(state).toBe('FAILING');
    expect(summary).toBe(`fails v2 is FAILING: its rollout failed: ${String(rollout['why'])}`);
    expect(JSON.stringify(steps)).not.toContain('longshore logs fails`');
    expect(details).toContain(`calls of fails reach v1, not this version: ${String(rollout['why'])}`);
    expect(steps).toContain('`longshore logs fails/v2` shows what its containers wrote');
    expect(JSON.stringify(await explained(first))).toContain(
      'v2 did not start, so this version serves on: the start of',
    );
    // Calls do not move to it by a slip.
    const { own, address } = platform;
    const env = { LONGSHORE_URL: `http://${address}`, LONGSHORE_TOKEN: own.token, LONGSHORE_CONTEXT_FILE: '/none' };
    expect(await runCommand(['deployment', 'rollback', 'fails', 'v2'], env)).toMatchObject({
      code: 2,
      stdout: '',
      stderr: `longshore: the rollout of fails v2 failed: ${String(rollout['why'])}; without a terminal, say --yes to move calls of fails there: nothing was changed\n`,
    });
    const show = await runCommand(['deployment', 'show', 'fails/v2'], env);
    expect(show.stdout).toMatch(/^state +FAILING$/m);
    expect(show.stdout).toMatch(/^rollout +failed: the start of .*no module named torch$/m);
    await callsReach('fails', first);
    // The version is still there under its number, and wants no container without a call.
    held.set(second.stubId, Promise.withResolvers());
    await verb(`POST /deployments/${second.id}/start`);
    await ends(second, 'waiting');
    held.get(second.stubId)?.resolve('');
    await ends(second, 'done');
    await callsReach('fails', second);
  });

  test('without a ready container of the older version, and with `now`, calls move at once', async () => {
    const idle = await deploy('idle');
    expect((await deploy('idle')).rollout).toMatchObject({ state: 'done' });
    expect(idle.version).toBe(1);
    await served('now');
    const second = await deploy('now', { now: true });
    expect(second.rollout).toMatchObject({ state: 'done' });
    await callsReach('now', second);
  });

  test('a stop or a deletion of the new version ends its rollout', async () => {
    for (const end of ['stop', 'delete']) {
      const first = await served(`ends-by-${end}`);
      const second = await deploy(`ends-by-${end}`, { holds: true });
      const containerId = await starts(second);
      if (end === 'stop') await verb(`POST /deployments/${second.id}/stop`);
      else await verb(`DELETE /deployments/${second.id}`);
      await waitFor(() => !agent.present.includes(containerId), 'its container is gone', PATIENCE_MS);
      await callsReach(`ends-by-${end}`, first);
      if (end === 'stop') expect(await rolloutOf(second)).toMatchObject({ state: 'stopped', why: 'it was stopped' });
    }
  });

  test('a stop or a deletion of the older version moves calls at once', async () => {
    for (const end of ['stop', 'delete']) {
      const first = await served(`older-${end}`);
      const second = await deploy(`older-${end}`, { holds: true });
      await starts(second);
      if (end === 'stop') await verb(`POST /deployments/${first.id}/stop`);
      else await verb(`DELETE /deployments/${first.id}`);
      const { why } = await ends(second, 'done');
      expect(['v1 was stopped or deleted', 'no older version is left']).toContain(why);
      const waiting = answeredBy(`older-${end}`);
      held.get(second.stubId)?.resolve('');
      expect(await waiting).toContain(second.stubId);
    }
  });

  test('a deploy in the middle takes the place of the rollout before it', async () => {
    const first = await served('again');
    const second = await deploy('again', { holds: true });
    const containerId = await starts(second);
    const third = await deploy('again', { holds: true });
    expect(third.rollout).toMatchObject({ state: 'waiting' });
    expect(await rolloutOf(second)).toMatchObject({ state: 'superseded', why: 'v3 was deployed' });
    await callsReach('again', first);
    await waitFor(() => !agent.present.includes(containerId), 'the container of v2 is gone', PATIENCE_MS);
    await starts(third);
    held.get(third.stubId)?.resolve('');
    await ends(third, 'done');
    await callsReach('again', third);
  });

  test('with no room on any machine calls stay where they are, until the older version goes', async () => {
    const first = await served('large', 40_000);
    const second = await deploy('large', { cpu: 40_000 });
    await waitFor(
      async () => {
        return JSON.stringify(await explained(second)).includes('"main_rejection":"cpu"');
      },
      'no machine has room',
      PATIENCE_MS,
    );
    expect(await rolloutOf(second)).toMatchObject({ state: 'waiting' });
    await callsReach('large', first);
    await verb(`POST /deployments/${first.id}/stop`);
    await ends(second, 'done');
    await callsReach('large', second);
  });

  test('a roll back moves calls at once, and the newer version can be reached again', async () => {
    const first = await served('back');
    const second = await deploy('back', { now: true });
    await callsReach('back', second);
    const back = ({ id }: { readonly id: string }) =>
      platform.call(`POST /api/v1/deployment/${platform.own.workspaceId}/rollback/${id}`);
    expect((await back(first)).status).toBe(200);
    await callsReach('back', first);
    expect(await rolloutOf(second)).toMatchObject({ state: 'withdrawn', why: 'the name was rolled back to v1' });
    // The next deploy is a rollout as ever.
    const third = await deploy('back', { holds: true });
    expect(third.rollout).toMatchObject({ state: 'waiting' });
    // A roll back in the middle ends the rollout.
    expect((await back(second)).status).toBe(200);
    expect(await rolloutOf(third)).toMatchObject({ state: 'withdrawn' });
    await callsReach('back', second);
    await verb(`POST /deployments/${first.id}/stop`);
    const refused = await back(first);
    expect([refused.status, refused.json['message']]).toEqual([400, 'back v1 is stopped: start it first']);
  });

  test('behind the deletion of what serves, calls reach the newest version that served, and none that failed', async () => {
    const first = await served('heirs');
    const second = await deploy('heirs', { now: true });
    await callsReach('heirs', second);
    const back = await platform.call(`POST /api/v1/deployment/${platform.own.workspaceId}/rollback/${first.id}`);
    expect(back.status).toBe(200);
    const third = await deploy('heirs', { holds: true });
    held.get(third.stubId)?.resolve('RuntimeError: no weights');
    await ends(third, 'failed');
    await verb(`DELETE /deployments/${first.id}`);
    await callsReach('heirs', second);
    expect(await rolloutOf(second)).toMatchObject({ state: 'done', why: 'v1, which served, was deleted' });
    expect(await listed('heirs')).toEqual([
      [3, false, 'failed'],
      [2, true, 'done'],
    ]);
    // Only the version that failed is left: the name has nobody to answer it, and the version has its number.
    await verb(`DELETE /deployments/${second.id}`);
    expect((await platform.call('POST /endpoint/heirs', {})).status).toBe(
      (await platform.call('POST /endpoint/nobody', {})).status,
    );
    expect(await listed('heirs')).toEqual([[3, false, 'failed']]);
    held.set(third.stubId, Promise.withResolvers());
    held.get(third.stubId)?.resolve('');
    await verb(`POST /deployments/${third.id}/start`);
    await callsReach('heirs', third);
  });

  test('a version from which somebody rolled back does not come back by a deletion while another has served', async () => {
    const first = await served('rejected');
    const second = await deploy('rejected', { now: true });
    await callsReach('rejected', second);
    const third = await deploy('rejected', { now: true });
    await callsReach('rejected', third);
    const back = await platform.call(`POST /api/v1/deployment/${platform.own.workspaceId}/rollback/${second.id}`);
    expect(back.status).toBe(200);
    await verb(`DELETE /deployments/${second.id}`);
    await callsReach('rejected', first);
    expect(await rolloutOf(third)).toMatchObject({ state: 'withdrawn', why: 'the name was rolled back to v2' });
  });

  test('a version that calls moved to at once and that never started does not serve behind a deletion', async () => {
    const first = await served('never');
    const second = await deploy('never', { holds: true, now: true });
    held.get(second.stubId)?.resolve('ImportError: no module named torch');
    expect((await platform.call('POST /endpoint/never', {})).status).toBe(500);
    const third = await deploy('never', { now: true });
    await callsReach('never', third);
    await verb(`DELETE /deployments/${third.id}`);
    await callsReach('never', first);
    expect(await rolloutOf(second)).toMatchObject({ state: 'withdrawn', why: 'v3, which served, was deleted' });
    // A stopped version is not started by a deletion: what runs serves.
    const fourth = await deploy('never', { now: true });
    await callsReach('never', fourth);
    const fifth = await deploy('never', { now: true });
    await callsReach('never', fifth);
    await verb(`POST /deployments/${fourth.id}/stop`);
    await verb(`DELETE /deployments/${fifth.id}`);
    await callsReach('never', first);
  });

  test('the command line rolls back, compares and lists versions, and means the one that serves by a name', async () => {
    await served('typed');
    const second = await deploy('typed', { now: true });
    await callsReach('typed', second);
    const { own, address } = platform;
    const env = {
      LONGSHORE_URL: `http://${address}`,
      LONGSHORE_TOKEN: own.token,
      LONGSHORE_CONTEXT_FILE: '/nonexistent/contexts.json',
    };
    const run = async (...args: readonly string[]): Promise<string> => {
      const ended = await runCommand(args, env);
      expect(ended).toMatchObject({ code: 0 });
      return ended.stdout;
    };
    expect(await run('deployment', 'rollback', 'typed')).toContain('calls of typed reach v1 now, no longer v2\n');
    expect((await run('deployment', 'list', '--name', 'typed')).replace(/ {2,}/g, ' ')).toMatch(
      /^NAME VERSION KIND ACTIVE SERVES .*\ntyped v2 endpoint yes withdrawn .*\ntyped v1 endpoint yes yes /,
    );
    expect(await run('deployment', 'diff', 'typed')).toBe('typed v1 to v2\nconfiguration:\n  ~ env N\n');
    expect(await run('deployment', 'stop', 'typed')).toContain('stopped typed v1\n');
    expect(await run('deployment', 'rollback', 'typed', 'v2')).toContain('calls of typed reach v2 now, no longer v1\n');
    await callsReach('typed', second);
    expect(await run('explain', 'typed')).toContain('typed v2 is');
    const shown = await run('deployment', 'show', 'typed');
    expect(shown).toMatch(/^version +v2, which serves the name$/m);
    expect(shown).toMatch(/^url +http:\/\/[\d.:]+\/endpoint\/typed$/m);
    // Values of variables may be secret.
    expect(shown).toMatch(/^variables +N$/m);
    const older = JSON.parse(await run('deployment', 'get', 'typed/v1', '--json')) as Json;
    expect(older).toMatchObject({ version: 1, serving: false, settings: { variables: ['N'] } });
    expect(older['urls']).toMatchObject({ version: expect.stringMatching(/\/endpoint\/typed\/v1$/) as string });
    const listedUrls = JSON.parse(await run('deployment', 'list', '--name', 'typed', '--json')) as Json[];
    expect(listedUrls.map(({ url }) => String(url).replace(/^.*\/endpoint/, ''))).toEqual(['/typed', '/typed/v1']);
    // A name means all its versions, and one version is deleted by its number.
    const refused = await runCommand(['deployment', 'delete', 'typed'], env);
    expect(refused).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(
        'typed has 2 versions: v2 (serves), v1; without a terminal, say --yes to delete all of them, or --version 2 for one: nothing was deleted',
      ) as string,
    });
    const third = await deploy('typed', { now: true, holds: true });
    const call = platform.call('POST /endpoint/typed', {});
    await waitFor(
      async () =>
        (await platform.gateway(`GET /tasks?filters=${JSON.stringify({ 'stub-id': [third.stubId] })}`)).text.includes(
          'PENDING',
        ),
      'a call waits',
    );
    const one = await runCommand(['deployment', 'delete', 'typed', '--version', '3'], env);
    expect(one).toMatchObject({
      code: 0,
      stdout: 'deleted typed v3, and cancelled 1 task\n',
      stderr: expect.stringContaining('calls of typed reach v2 now\n') as string,
    });
    expect((await call).status).toBe(503);
    expect(await run('deployment', 'delete', 'typed', '--yes')).toBe('deleted typed v2\ndeleted typed v1\n');
    expect(await listed('typed')).toEqual([]);
  });
});

describe.each(KINDS)('the leader’s loop on %s', (kind) => {
  let opened: OpenedDb;
  beforeAll(async () => {
    opened = await aDb(kind);
  });
  afterAll(() => opened.stop());

  /** Two versions of a name, the second of which waits. */
  const versions = async (): Promise<readonly [DeploymentRow, DeploymentRow]> => {
    const { db } = opened;
    const workspace = await aWorkspace(db);
    const stub = await aStub(db, workspace.id);
    const one = (waits: boolean): Promise<DeploymentRow> =>
      insertDeployment(db, {
        id: newId<DeploymentId>(),
        workspaceId: workspace.id,
        appId: stub.appId,
        stubId: stub.id,
        name: 'named',
        stubType: stub.type,
        subdomain: 'named',
        waits,
      });
    return [await one(false), await one(true)];
  };
  const aLoop = (
    ready: readonly QueueName[],
    fence: () => number | undefined,
    clock = new TestClock(),
    starting: Readonly<Record<QueueName, ContainerEntry>> = {},
  ) => {
    const told: DeploymentId[] = [];
    const entry = { row: { state: 'RUNNING' } } as ContainerEntry;
    const loop = new RolloutLoop({
      db: opened.db,
      targets: {
        byDeployment: () => Promise.resolve(undefined),
        changed: (id) => {
          told.push(id);
          return Promise.resolve(undefined);
        },
      },
      containers: {
        ofQueue: (queue: QueueName) => [...(ready.includes(queue) ? [entry] : []), ...[starting[queue] ?? []].flat()],
      },
      events: new EventWriter(),
      clock,
      log: silent,
      loops: new LoopMetrics(new Registry(), clock),
      fence,
    });
    loop.start();
    return { loop, told, clock };
  };
  const stateOf = async ({ id }: DeploymentRow) => (await deploymentById(opened.db, id))?.rollout;
  const queueOf = ({ id, stubId }: DeploymentRow): QueueName => queueNameOf(id, stubId);

  test('moves calls at the start limit, and tells every replica', async () => {
    const [older, newer] = await versions();
    const { loop, told, clock } = aLoop([queueOf(older)], () => 1);
    try {
      // The loop has looked once the other rollout, which can end, has ended.
      const [another, ends] = await versions();
      loop.wake();
      await waitFor(async () => (await stateOf(ends)) === 'done', 'the other ends', PATIENCE_MS);
      expect(another.version).toBe(1);
      expect(await stateOf(newer)).toBe('waiting');
      clock.aheadMs = 15 * 60_000;
      loop.wake();
      await waitFor(() => told.includes(newer.id), 'the replicas are told', PATIENCE_MS);
      expect(await deploymentById(opened.db, newer.id)).toMatchObject({
        rollout: 'done',
        rolloutWhy: 'none of its containers was ready within 15 minutes, and calls wait for one',
      });
    } finally {
      await loop.stop();
    }
  });

  test('counts the start limit from the end of a pull, and from its own beginning where it saw none', async () => {
    const [older, newer] = await versions();
    const clock = new TestClock();
    const pulling = { row: { state: 'STARTING' } } as ContainerEntry;
    const signs = { phase: 'pulling', toldAtMs: 0, loadedBytes: 0, cpuMicroseconds: 0, readBytes: 0 };
    const first = aLoop([queueOf(older)], () => 1, clock, { [queueOf(newer)]: pulling });
    /** Has the loop look, and knows that it has by a rollout which can end. */
    const look = async ({ loop }: Pick<typeof first, 'loop'>): Promise<unknown> => {
      const [, ends] = await versions();
      loop.wake();
      await waitFor(async () => (await stateOf(ends)) === 'done', 'the loop has looked', PATIENCE_MS);
      return stateOf(newer);
    };
    let second: typeof first | undefined;
    try {
      for (const text of ['pulling a:1: 1 of 9 layers', turnText('a:1', 3, 40)]) {
        pulling.start = { ...signs, text, atMs: clock.monotonicMs() };
        expect(await look(first)).toBe('waiting');
        clock.aheadMs += 14 * 60_000;
      }
      // A place in the line is progress for as long as it lasts. Then the image is there, and the program starts.
      expect(await look(first)).toBe('waiting');
      pulling.start = { ...signs, phase: 'starting', text: '', atMs: clock.monotonicMs() };
      expect(await look(first)).toBe('waiting');
      clock.aheadMs += 14 * 60_000;
      expect(await look(first)).toBe('waiting');
      await first.loop.stop();
      second = aLoop([queueOf(older)], () => 1, clock, { [queueOf(newer)]: pulling });
      clock.aheadMs += 2 * 60_000;
      expect(await look(second)).toBe('waiting');
      clock.aheadMs += 15 * 60_000;
      expect(await look(second)).toBe('done');
    } finally {
      await first.loop.stop();
      await second?.loop.stop();
    }
  });

  test('leaves rows and statement agreed on which versions serve, in every state', async () => {
    const { db } = opened;
    const workspace = await aWorkspace(db);
    const stub = await aStub(db, workspace.id);
    for (const [index, states] of [
      [null, 'waiting'],
      ['done', 'failed', 'done', 'superseded'],
      ['waiting', 'withdrawn', 'stopped'],
      [null],
    ].entries())
      for (const state of states) {
        const { id } = await insertDeployment(db, {
          id: newId<DeploymentId>(),
          workspaceId: workspace.id,
          appId: stub.appId,
          stubId: stub.id,
          name: `name-${index % 3}`,
          stubType: index === 3 ? 'asgi/deployment' : stub.type,
          subdomain: `name-${index}`,
        });
        await db.query('update deployments set rollout = $2 where id = $1', [id, state]);
      }
    const rows = await listDeployments(db, { workspaceId: workspace.id, limit: 100 });
    const names = rows.map(({ name }) => name);
    const serving = await servingIds(db, workspace.id, names);
    expect(serving.size).toBe(4);
    expect(servingAmong(rows)).toEqual(serving);
  });

  test('names the queues of both versions while a rollout waits, so that their containers are not interrupted', async () => {
    const [older, newer] = await versions();
    const leads = aLoop([queueOf(older)], () => 1);
    await waitFor(() => leads.loop.watches(queueOf(newer)), 'it has looked');
    expect(leads.loop.watches(queueOf(older))).toBe(true);
    await leads.loop.stop();
    const moves = aLoop([queueOf(newer)], () => 1);
    await waitFor(async () => (await stateOf(newer)) === 'done', 'calls have moved');
    moves.loop.wake();
    await waitFor(() => !moves.loop.watches(queueOf(newer)), 'nothing waits');
    expect(moves.loop.watches(queueOf(older))).toBe(false);
    await moves.loop.stop();
  });

  test('of a new leader goes on with what waits; that of an earlier one writes nothing', async () => {
    const [older, newer] = await versions();
    const leads = (await raiseFence(opened.db, 1)) + 1;
    await raiseFence(opened.db, leads);
    const ready = [queueOf(older), queueOf(newer)];
    const follower = aLoop(ready, () => undefined);
    const earlier = aLoop(ready, () => leads - 1);
    let asked = 0;
    const late = aLoop(ready, () => {
      asked += 1;
      return leads - 1;
    });
    try {
      // A decision asks for its number once more before it is written.
      await waitFor(() => asked >= 4, 'it has decided twice', PATIENCE_MS);
      expect(await stateOf(newer)).toBe('waiting');
      const leader = aLoop(ready, () => leads);
      try {
        await waitFor(() => leader.told.includes(newer.id), 'the leader ends it', PATIENCE_MS);
        expect(await stateOf(newer)).toBe('done');
      } finally {
        await leader.loop.stop();
      }
      expect([follower.told, earlier.told, late.told]).toEqual([[], [], []]);
    } finally {
      for (const { loop } of [follower, earlier, late]) await loop.stop();
    }
  });
});
