// The agent link as an agent sees it: real gRPC with the installation's CA, on a real database and a real Redis. The
// agent is a few lines that speak agent.proto.
import { randomBytes, randomUUID } from 'node:crypto';
import { chmodSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { describe, expect } from 'vitest';
import type { ContainerId, ObjectId } from '#shared/domain/ids.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { isSchedulable } from '#scheduler/fleet/machine.ts';
import { listenPrivately } from '#scheduler/fleet/local-socket.ts';
import { readLogLines } from '#scheduler/stores/store/queries/logs.ts';
import { deleteMachine, machinesById } from '#scheduler/stores/store/queries/machines.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { tempDirectory, waitFor } from '../helpers/services.ts';
import { becomes, codeOf, health, secretOf, seen, serving, test } from './fleet-fixture.ts';

describe('joining', () => {
  test('a join token is used once; its answer may be asked for again by the same machine only', async ({
    fleet,
    agents,
  }) => {
    const created = await fleet.joining.create({ workspaceId: null }, 'default');
    const secret = secretOf(created.joinToken);
    const nonce = randomUUID();
    const agent = agents.stranger();
    expect(await agent.join(secret, nonce)).toMatchObject({ machineId: created.machineId, poolName: 'default' });
    expect(await agent.join(secret, nonce)).toMatchObject({ machineId: created.machineId });
    expect(await codeOf(agent.join(secret))).toBe(status.PERMISSION_DENIED);
    expect(await codeOf(agent.join(secret, nonce, 'another machine'))).toBe(status.PERMISSION_DENIED);
    await agent.connect();
    await becomes(fleet, agent, 'READY');
  });

  test('rows of machines that never joined do not slow the fleet down: heartbeats are told by those that may be there', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    for (let made = 0; made < 5; made += 1) await fleet.joining.create({ workspaceId: null }, 'gpu');
    fleet.clock.aheadMs += 2_000;
    expect(fleet.machines.expected()).toBe(1);
    fleet.agentReports.suspect(agent.machineId, fleet.machines.get(agent.machineId)?.sessionId ?? '', 'stream_ended');
    fleet.clock.aheadMs += 2_000;
    expect(fleet.machines.expected()).toBe(1);
  });

  test('two agents with one token at once: one joins', async ({ fleet, agents }) => {
    const created = await fleet.joining.create({ workspaceId: null }, 'default');
    const codes = await Promise.all(
      [1, 2, 3].map((index) => codeOf(agents.stranger().join(secretOf(created.joinToken), randomUUID(), `f-${index}`))),
    );
    expect(codes.toSorted((a, b) => a - b)).toEqual([-1, status.PERMISSION_DENIED, status.PERMISSION_DENIED]);
  });

  test('a wrong token and an expired one are refused', async ({ fleet, agents }) => {
    expect(await codeOf(agents.stranger().join('wrong'))).toBe(status.PERMISSION_DENIED);
    const created = await fleet.joining.create({ workspaceId: null }, 'default');
    fleet.clock.aheadMs = 31 * 60_000;
    expect(await codeOf(agents.stranger().join(secretOf(created.joinToken)))).toBe(status.PERMISSION_DENIED);
    // Machines expire even when nobody lists them.
    await fleet.health.check();
    expect(fleet.machines.get(created.machineId)?.health).toBe('EXPIRED');
    const [row] = await machinesById(fleet.db, [created.machineId]);
    expect(row?.health).toBe('EXPIRED');
  });

  test('the socket for the agent of this machine is private, and asks for its credential all the same', async ({
    fleet,
    agents,
  }) => {
    expect(statSync(fleet.socketPath).mode & 0o777).toBe(0o600);
    expect(statSync(dirname(fleet.socketPath)).mode & 0o777).toBe(0o700);
    const agent = await agents.joined();
    agent.goLocal();
    const { credential } = agent;
    agent.credential = 'made up';
    const heard = agent.control();
    await heard.over();
    expect(heard.error?.code).toBe(status.UNAUTHENTICATED);
    agent.credential = credential;
    await agent.connect();
    expect(agent.sessionId).not.toBe('');
  });

  test('a directory that others may enter gets no socket', async () => {
    const directory = tempDirectory('open');
    try {
      chmodSync(directory.path, 0o755);
      const refused = listenPrivately(join(directory.path, 'agent.sock'), () => Promise.resolve());
      await expect(refused).rejects.toMatchObject({ code: 'data_dir_unusable' });
    } finally {
      directory.remove();
    }
  });

  test('no stream without a machine’s credential', async ({ agents }) => {
    const agent = await agents.joined();
    agent.credential = 'x.y.z';
    const streams = [agent.control(), agent.tasks('s'), agent.logs()];
    for (const heard of streams) {
      await heard.over();
      expect(heard.error?.code).toBe(status.UNAUTHENTICATED);
    }
    expect(await codeOf(agent.fetchCode('o'))).toBe(status.UNAUTHENTICATED);
  });
});

describe('a container on its machine', () => {
  test('hello, welcome, desired, ack, proceed, running: then it takes tasks, and their results are acknowledged', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const { target, tasks, control, entry } = await serving(fleet, agent);
    expect(health(fleet, agent)).toBe('READY');
    const snapshots = control.messages.flatMap((message) => (message.desired ? [message.desired] : []));
    expect(snapshots.map((one) => one.revision)).toEqual(snapshots.map((_, index) => index + 1));
    expect(snapshots[0]).toMatchObject({ full: true, confirmEmpty: true, assignments: [] });
    expect(snapshots.at(-1)?.assignments).toMatchObject([{ containerId: entry.row.id, epoch: 1, stop: false }]);
    const submission = await fleet.process.submissions.submit(target, { input: '{"big":true}' });
    if (submission.kind !== 'accepted') throw new Error(submission.kind);
    const run = await tasks.until('the task', (message) => message.run);
    expect(run.input.toString()).toBe('{"big":true}');
    const result = { taskId: run.taskId, token: run.token, containerId: run.containerId, outcome: 'ok', durationMs: 1 };
    tasks.stream.write({ result: { ...result, body: Buffer.from('7') } });
    await tasks.until('the acknowledgement', (message) => message.acked?.token === run.token);
    expect(seenByCaller(await submission.finished)).toEqual({ status: 'COMPLETE', httpStatus: 200, body: '7' });
  });

  test('an acknowledgement made twice is answered twice', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    const entry = await fleet.assigned(await fleet.target(), agent.machineId);
    const ack = { assignmentId: entry.row.assignmentId ?? '', containerId: entry.row.id, epoch: entry.row.epoch };
    control.stream.write({ ack });
    control.stream.write({ ack });
    await waitFor(() => control.messages.filter((message) => message.proceed).length === 2, 'proceed comes twice');
    expect(entry.row.state).toBe('STARTING');
  });

  test('the secrets of a stub come with the permission to create its container, and with nothing else', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    const target = await fleet.target();
    const { workspaceId } = target;
    const value = `value-${randomUUID()}`;
    await fleet.secrets.create(workspaceId, 'API_KEY', value);
    const config = { ...target.config, secrets: ['API_KEY'] };
    const entry = await fleet.assigned({ ...target, config }, agent.machineId);
    const ack = { assignmentId: entry.row.assignmentId ?? '', containerId: entry.row.id, epoch: entry.row.epoch };
    await control.until('the assignment', (message) =>
      message.desired?.assignments.find((one) => one.containerId === ack.containerId),
    );
    control.stream.write({ ack });
    const proceed = await control.until('proceed', (message) => message.proceed);
    expect(proceed.secrets).toEqual({ API_KEY: value });
    expect(JSON.stringify(control.messages.filter((message) => !message.proceed))).not.toContain(value);
    const { rows } = await fleet.db.query<{ row: string }>(
      `select row_to_json(s)::text || encode(sealed, 'escape') as row from secrets s
       union all select row_to_json(c)::text from containers c`,
    );
    expect(rows.length).toBeGreaterThan(1);
    expect(JSON.stringify(rows)).not.toContain(value);

    await fleet.secrets.delete(workspaceId, 'API_KEY');
    const late = await fleet.assigned({ ...target, config }, agent.machineId);
    control.stream.write({
      ack: { assignmentId: late.row.assignmentId ?? '', containerId: late.row.id, epoch: late.row.epoch },
    });
    await waitFor(() => late.row.state === 'FAILED', 'the container fails');
    expect(late.row).toMatchObject({
      reason: 'user_error',
      message: 'secret API_KEY was deleted: set it again, or deploy without it',
    });
    expect(control.messages.filter((message) => message.proceed)).toHaveLength(1);
  });

  test('secrets that are more together than a container may have end its start, and no link', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    const target = await fleet.target();
    const names = Array.from({ length: 9 }, (_, at) => `LONG_${at}`);
    for (const name of names) await fleet.secrets.create(target.workspaceId, name, 'x'.repeat(32 * 1024));
    const config = { ...target.config, secrets: names };
    const entry = await fleet.assigned({ ...target, config }, agent.machineId);
    control.stream.write({
      ack: { assignmentId: entry.row.assignmentId ?? '', containerId: entry.row.id, epoch: entry.row.epoch },
    });
    await waitFor(() => entry.row.state === 'FAILED', 'the container fails');
    expect(entry.row).toMatchObject({
      reason: 'user_error',
      message: 'its secrets have more than 256 KiB together: name fewer of them, or shorter ones',
    });
    expect(control.messages.filter((message) => message.proceed)).toHaveLength(0);
  });

  test('orders that one message cannot carry are given back with the reason, and the link stays', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    const { sessionId } = agent;
    const target = await fleet.target();
    const config = { ...target.config, env: [`BIG=${'x'.repeat(120_000)}`] };
    const entries: ContainerEntry[] = [];
    for (let at = 0; at < 12; at += 1) entries.push(await fleet.assigned({ ...target, config }, agent.machineId));
    const back = () => entries.filter(({ row }) => row.state === 'PENDING');
    await waitFor(() => back().length > 0, 'some are given back');
    await waitFor(
      () => control.messages.at(-1)?.desired?.assignments.length === entries.length - back().length,
      'the others are ordered',
    );
    expect(back().length).toBeLessThan(6);
    expect(back()[0]?.row.message).toMatch(/as many orders as one message/);
    const largest = Math.max(...control.messages.map((message) => JSON.stringify(message.desired ?? '').length));
    expect(largest).toBeLessThan(1024 * 1024);
    expect([control.ended, fleet.machines.get(agent.machineId)?.sessionId]).toEqual([false, sessionId]);
  });

  test('volume drivers that come after the hello are the machine’s, and a session that was replaced says nothing of them', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const old = await agent.connect();
    const drivers = () => fleet.machines.get(agent.machineId)?.inventory?.volumeDrivers;
    expect(drivers()).toEqual([]);
    old.stream.write({ volumeDrivers: { names: ['made up', 's3', 'bucket', 's3'] } });
    await waitFor(() => drivers()?.join() === 's3,bucket', 'the drivers are taken in');
    await waitFor(async () => {
      const [row] = await machinesById(fleet.db, [agent.machineId]);
      return (row?.inventory as { volumeDrivers?: string[] } | null)?.volumeDrivers?.join() === 's3,bucket';
    }, 'other replicas can read them');
    const { sessionId } = agent;
    const control = await agent.connect();
    expect(drivers()).toEqual([]);
    await fleet.agentReports.volumeDrivers(agent.machineId, sessionId, ['nfs']);
    expect(drivers()).toEqual([]);
    control.stream.write({ volumeDrivers: { names: ['shared'] } });
    await waitFor(() => drivers()?.join() === 'shared', 'the drivers of the new session are taken in');
  });

  test('messages of an older epoch, or about another machine’s container, change nothing', async ({
    fleet,
    agents,
  }) => {
    const [agent, other] = [await agents.joined(), await agents.joined()];
    const [control, others] = [await agent.connect(), await other.connect()];
    const entry = await fleet.assigned(await fleet.target(), agent.machineId);
    const first = { assignmentId: entry.row.assignmentId ?? '', containerId: entry.row.id, epoch: 1 };
    await fleet.containers.transition(entry.row.id, 'revoke', { change: { machineId: null, assignmentId: null } });
    await fleet.containers.transition(entry.row.id, 'assign', {
      change: { machineId: agent.machineId, assignmentId: randomUUID(), epoch: 2 },
    });
    const second = { ...first, assignmentId: entry.row.assignmentId ?? '', epoch: 2 };
    control.stream.write({ ack: first });
    control.stream.write({ ack: { ...second, epoch: 1 } });
    control.stream.write({ status: { seq: 1, full: false, containers: [seen(entry, 'running', { epoch: 1 })] } });
    control.stream.write({ refuse: { ...second, epoch: 1, reason: 'cpu', message: '' } });
    others.stream.write({ ack: second });
    others.stream.write({ refuse: { ...second, reason: 'cpu', message: '' } });
    others.stream.write({ heartbeat: { sentAtMs: 1, conditions: ['DiskPressure'] } });
    control.stream.write({ heartbeat: { sentAtMs: 1, conditions: ['DiskPressure'] } });
    for (const one of [agent, other])
      await waitFor(() => fleet.machines.get(one.machineId)?.conditions.length === 1, 'all of it was handled');
    expect(entry.row.state).toBe('ASSIGNED');
    control.stream.write({ ack: second });
    expect((await control.until('proceed', (message) => message.proceed)).epoch).toBe(2);
    expect(control.messages.filter((message) => message.proceed)).toHaveLength(1);
    expect(others.messages.filter((message) => message.proceed)).toHaveLength(0);
  });

  test('an assignment that nobody acknowledges goes back after 15 s, and a late acknowledgement is refused', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    const entry = await fleet.assigned(await fleet.target(), agent.machineId);
    const ack = { assignmentId: entry.row.assignmentId ?? '', containerId: entry.row.id, epoch: entry.row.epoch };
    // The age counts from the leader's first look: the clock of the one that assigned it may differ.
    for (const aheadMs of [16_000, 30_000]) {
      fleet.clock.aheadMs = aheadMs;
      await fleet.health.check();
      expect(entry.row.state).toBe('ASSIGNED');
    }
    fleet.clock.aheadMs = 32_000;
    await fleet.health.check();
    expect(entry.row).toMatchObject({ state: 'PENDING', machineId: null });
    control.stream.write({ ack });
    control.stream.write({ heartbeat: { sentAtMs: 1, conditions: ['DiskPressure'] } });
    await waitFor(() => fleet.machines.get(agent.machineId)?.conditions.length === 1, 'all of it was handled');
    expect(entry.row.state).toBe('PENDING');
    expect(control.messages.some((message) => message.proceed)).toBe(false);
  });

  test('an assignment made in the moment of a cordon is not acknowledged: nothing is created there', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    const machine = fleet.machines.get(agent.machineId);
    if (machine === undefined) throw new Error('there is no machine');
    fleet.machines.setRow(machine, { intent: 'cordoned' });
    const entry = await fleet.assigned(await fleet.target(), agent.machineId);
    const { assignmentId, epoch, id: containerId } = entry.row;
    control.stream.write({ ack: { assignmentId: assignmentId ?? '', containerId, epoch } });
    await waitFor(() => entry.row.state === 'PENDING', 'it looks for another place');
    expect(entry.row.machineId).toBeNull();
    expect(control.messages.some((message) => message.proceed)).toBe(false);
  });

  test('what is wrong with a machine is known from its first word, kept over a session, and forgotten everywhere when it is over', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const hello = { ...agent.hello(), conditions: { names: ['DockerDown'] } };
    agent.control().stream.write({ hello });
    await becomes(fleet, agent, 'READY');
    const machine = () => {
      const found = fleet.machines.get(agent.machineId);
      if (found === undefined) throw new Error('there is no machine');
      return found;
    };
    expect(isSchedulable(machine())).toBe(false);
    const second = agent.control();
    second.stream.write({ hello });
    await second.until('the first snapshot', (message) => message.desired);
    await becomes(fleet, agent, 'READY');
    expect(isSchedulable(machine())).toBe(false);
    second.stream.write({ heartbeat: { sentAtMs: 1, conditions: [] } });
    await waitFor(() => isSchedulable(machine()), 'it takes work again');
    await waitFor(async () => {
      const [row] = await machinesById(fleet.db, [agent.machineId]);
      return row?.conditions.length === 0;
    }, 'whoever reads the row knows it too');
  });

  test('only its own machine gets its code', async ({ fleet, agents }) => {
    const [agent, other] = [await agents.joined(), await agents.joined()];
    const bytes = randomBytes(1_500_000);
    fleet.objects.set('o-1', bytes);
    const target = await fleet.target({ code: { objectId: 'o-1' as ObjectId, sha256: 's', sizeBytes: bytes.length } });
    await fleet.assigned(target, agent.machineId);
    expect((await agent.fetchCode('o-1')).equals(bytes)).toBe(true);
    expect(await codeOf(other.fetchCode('o-1'))).toBe(status.NOT_FOUND);
    expect(await codeOf(agent.fetchCode('o-2'))).toBe(status.NOT_FOUND);
  });

  test('only lines of a machine’s own containers are kept, also of one that just ended', async ({ fleet, agents }) => {
    const [agent, other] = [await agents.joined(), await agents.joined()];
    const entry = await fleet.assigned(await fleet.target(), agent.machineId);
    const foreign = await fleet.assigned(await fleet.target(), other.machineId);
    const line = (of: ContainerEntry, text: string) => ({
      containerId: of.row.id,
      taskId: '',
      stream: 'stdout',
      line: text,
      timestampMs: Date.now(),
    });
    const logs = agent.logs();
    logs.stream.write({ seq: 1, records: [line(entry, 'mine'), line(foreign, 'not mine')] });
    await logs.until('the first batch', (message) => message.seq === 1);
    await fleet.containers.transition(entry.row.id, 'ack');
    await fleet.containers.transition(entry.row.id, 'fail');
    // A time that no database takes must not hold up the lines after it.
    logs.stream.write({ seq: 2, records: [line(entry, 'last words'), { ...line(entry, 'odd'), timestampMs: 9e17 }] });
    await logs.until('the second batch', (message) => message.seq === 2);
    const linesOf = async (containerId: ContainerId): Promise<string[]> => {
      const match = { workspaceId: entry.row.workspaceId, containerId };
      return (await readLogLines(fleet.db, match, { afterId: 0 }, undefined, 100)).map((row) => row.line);
    };
    expect(await linesOf(entry.row.id)).toEqual(['mine', 'last words', 'odd']);
    expect(await linesOf(foreign.row.id)).toEqual([]);
    logs.stream.end();
  });
});

describe('log streams', () => {
  test('of a deleted machine deliver nothing more', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const entry = await fleet.assigned(await fleet.target(), agent.machineId);
    const logs = agent.logs();
    const line = (text: string) => ({
      containerId: entry.row.id,
      taskId: '',
      stream: 'stdout',
      line: text,
      timestampMs: Date.now(),
    });
    logs.stream.write({ seq: 1, records: [line('before')] });
    await logs.until('the first batch', (message) => message.seq === 1);
    expect(await deleteMachine(fleet.db, agent.machineId)).toBe(true);
    fleet.machines.deleted(agent.machineId);
    logs.stream.write({ seq: 2, records: [line('after')] });
    await logs.over();
    const { rows } = await fleet.db.query<{ line: string }>('select line from log_lines where container_id = $1', [
      entry.row.id,
    ]);
    expect(rows.map((row) => row.line)).toEqual(['before']);
  });

  test('are two of a machine; the oldest ends for the next one', async ({ agents }) => {
    const agent = await agents.joined();
    const first = agent.logs();
    first.stream.write({ seq: 1, records: [] });
    await first.until('it is there', (message) => message.seq === 1);
    const others = [agent.logs(), agent.logs()];
    await first.over();
    for (const other of others) {
      other.stream.write({ seq: 2, records: [] });
      await other.until('it is there', (message) => message.seq === 2);
      other.stream.end();
    }
  });
});

describe('an agent that says more than can be handled', () => {
  test.override('settings', { pingIntervalMs: 50, pongWithinMs: 250 });

  test('is not read on, keeps its session though its pings lie unread, and every word counts', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    const { sessionId } = agent;
    const silent = [await agents.joined(), await agents.joined()];
    const streams = await Promise.all(silent.map((one) => one.connect()));
    const orphan = (at: number) => ({ containerId: `c-${at}`, assignmentId: 'a', epoch: 1, phase: 'running' });
    const words = 200;
    // The transaction keeps the database busy for longer than a ping may take: agents that
    // stop to answer pings, one after the other, lose their sessions meanwhile.
    await fleet.db.transaction(async () => {
      for (let at = 0; at < words; at += 1)
        control.stream.write({ status: { seq: at, full: false, containers: [orphan(at)] } });
      for (const [at, one] of silent.entries()) {
        one.answersPings = false;
        await streams[at]?.over();
      }
    });
    const known = () => fleet.machines.get(agent.machineId);
    await waitFor(() => known()?.orphans.size === words, 'all that it said is known');
    expect([known()?.sessionId, known()?.health, control.ended]).toEqual([sessionId, 'READY', false]);
  });
});

test('slots of runner processes that start again take nothing until these serve', async ({ fleet, agents }) => {
  const { control, entry } = await serving(fleet, await agents.joined());
  let seq = 1;
  const told = async (changes: { slots: number; restartingSlots?: number }, wanted: number): Promise<void> => {
    seq += 1;
    control.stream.write({ status: { seq, full: false, containers: [seen(entry, 'running', changes)] } });
    await waitFor(() => fleet.process.slots.get(entry.row.id)?.slots === wanted, `it has ${wanted} slots`);
  };
  await told({ slots: 4, restartingSlots: 2 }, 2);
  await told({ slots: 4, restartingSlots: 4 }, 0);
  await told({ slots: 4, restartingSlots: 0 }, 4);
  expect(entry.row.state).toBe('RUNNING');
});

describe('sessions', () => {
  test.override('settings', { pingIntervalMs: 100, pongWithinMs: 100, helloWithinMs: 400 });

  test('a ping that is not answered: suspect at once, and nothing new goes there', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const { entry, target, control, tasks } = await serving(fleet, agent);
    agent.answersPings = false;
    await becomes(fleet, agent, 'SUSPECT');
    await control.over();
    // With many others it would be told a longer one, so that they do not all dial at once.
    expect(control.messages.at(-1)?.later?.windowMs).toBe(500);
    expect(fleet.process.slots.get(entry.row.id)?.accepting).toBe(false);
    expect(entry.row.state).toBe('RUNNING');
    const submission = await fleet.process.submissions.submit(target, { input: '{}' });
    expect(submission.kind).toBe('accepted');
    expect((await fleet.process.lines.depth(target.queue)).waiting).toBe(1);
    expect(tasks.messages.some((message) => message.run)).toBe(false);
  });

  test('a session lost and back keeps its container, and serves what waited', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const { entry, target, control } = await serving(fleet, agent);
    control.stream.cancel();
    await becomes(fleet, agent, 'SUSPECT');
    await fleet.process.submissions.submit(target, { input: '{}' });
    await agent.connect([seen(entry, 'running')]);
    await becomes(fleet, agent, 'READY');
    const tasks = agent.tasks();
    tasks.stream.write({ report: { running: [] } });
    await tasks.until('the task that waited', (message) => message.run);
    expect(entry.row.state).toBe('RUNNING');
  });

  test('a container that its machine has no more at a hello has failed', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const { entry, control } = await serving(fleet, agent);
    control.stream.cancel();
    await becomes(fleet, agent, 'SUSPECT');
    await agent.connect([]);
    await waitFor(() => entry.row.state === 'FAILED', 'it has failed');
  });

  test('the newer session wins, and the older one says nothing any more', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const { control: older, entry, tasks } = await serving(fleet, agent);
    const olderSession = agent.sessionId;
    await agent.connect([seen(entry, 'running')]);
    await older.until('superseded', (message) => message.superseded);
    await older.over();
    await waitFor(() => tasks.ended, 'its task stream ends, too');
    await becomes(fleet, agent, 'READY');
    const late = agent.tasks(olderSession);
    await late.over();
    expect(late.error?.code).toBe(status.FAILED_PRECONDITION);
    expect(entry.row.state).toBe('RUNNING');
    expect(health(fleet, agent)).toBe('READY');
  });

  test('a stream that ends while its hello is written leaves no machine that looks ready', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    for (let times = 0; times < 5; times += 1) {
      const control = agent.control();
      control.stream.write({ hello: agent.hello() });
      control.stream.end();
      await control.over();
      await becomes(fleet, agent, 'SUSPECT');
    }
  });

  test('a newer stream that says nothing takes the machine out of service, and is closed', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    await agent.connect();
    await becomes(fleet, agent, 'READY');
    const silent = agent.control();
    await becomes(fleet, agent, 'SUSPECT');
    await silent.over();
    await agent.connect();
    await becomes(fleet, agent, 'READY');
  });

  test('silent for 90 s it is lost: containers unknown, attempts ended; back again it has them as they were', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const { entry, target, control, tasks } = await serving(fleet, agent);
    const submission = await fleet.process.submissions.submit(target, { input: '{}' });
    if (submission.kind !== 'accepted') throw new Error(submission.kind);
    await tasks.until('the task', (message) => message.run);
    control.stream.cancel();
    await becomes(fleet, agent, 'SUSPECT');
    // No machine is lost within the grace after a scheduler start.
    fleet.clock.aheadMs = 110_000;
    await fleet.health.check();
    expect(health(fleet, agent)).toBe('SUSPECT');
    fleet.clock.aheadMs = 125_000;
    await fleet.health.check();
    expect(health(fleet, agent)).toBe('LOST');
    expect(entry.row.state).toBe('UNKNOWN');
    expect(seenByCaller(await submission.finished)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
    await agent.connect([seen(entry, 'running')]);
    await waitFor(() => entry.row.state === 'RUNNING', 'it runs as before');
  });
});

describe('results in parts', () => {
  test('come together once, also when a broken stream made the agent send them twice', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const { target, tasks } = await serving(fleet, agent);
    const submission = await fleet.process.submissions.submit(target, { input: '{}' });
    if (submission.kind !== 'accepted') throw new Error(submission.kind);
    const run = await tasks.until('the task', (message) => message.run);
    const ids = { taskId: run.taskId, token: run.token };
    const parts = [randomBytes(200_000), randomBytes(200_000), randomBytes(10)].map((bytes) =>
      Buffer.from(bytes.toString('hex')),
    );
    const send = (stream: typeof tasks, data: Buffer | undefined, seq: number): void => {
      if (data !== undefined) stream.stream.write({ chunk: { ...ids, seq, data } });
    };
    send(tasks, parts[0], 0);
    send(tasks, parts[1], 1);
    const again = agent.tasks();
    again.stream.write({ report: { running: [{ ...ids, containerId: run.containerId }] } });
    await again.until('the answer to the report', (message) => message.known?.adopted.length === 1);
    for (const [seq, data] of parts.entries()) send(again, data, seq);
    const result = {
      ...ids,
      containerId: run.containerId,
      outcome: 'ok',
      durationMs: 1,
      chunks: 3,
      body: Buffer.alloc(0),
    };
    again.stream.write({ result });
    expect((await submission.finished).body).toBe(Buffer.concat(parts).toString());
  });

  test('a result without all of its parts is not taken for whole', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const { target, tasks } = await serving(fleet, agent);
    const submission = await fleet.process.submissions.submit(target, { input: '{}' });
    if (submission.kind !== 'accepted') throw new Error(submission.kind);
    const run = await tasks.until('the task', (message) => message.run);
    const ids = { taskId: run.taskId, token: run.token };
    tasks.stream.write({ chunk: { ...ids, seq: 1, data: Buffer.from('"b"') } });
    tasks.stream.write({
      result: { ...ids, containerId: run.containerId, outcome: 'ok', durationMs: 1, chunks: 2, body: Buffer.from('') },
    });
    expect(seenByCaller(await submission.finished)).toMatchObject({ status: 'ERROR', httpStatus: 502 });
  });
});
