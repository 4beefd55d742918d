// The right to speak for a machine: credentials and their successors, and recovery by a machine's key. Also the answer
// to a deleted machine, and the signs of a copied identity.
import { randomUUID } from 'node:crypto';
import { status } from '@grpc/grpc-js';
import { describe, expect } from 'vitest';
import { isRevocation } from '#agent/upstream/revocation.ts';
import { deleteMachine } from '#scheduler/stores/store/queries/machines.ts';
import { seenByCaller } from '../helpers/seen-by-caller.ts';
import { waitFor } from '../helpers/services.ts';
import type { Agent, Fleet } from './fleet-fixture.ts';
import { becomes, codeOf, health, secretOf, serving, test } from './fleet-fixture.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

const refusal = async (agent: Agent): Promise<number | undefined> => {
  const control = agent.control();
  await control.over();
  return control.error?.code;
};
const textOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => '',
    (error: unknown) => (error as Error).message,
  );
const deleted = async (fleet: Fleet, agent: Agent): Promise<void> => {
  expect(await deleteMachine(fleet.db, agent.machineId)).toBe(true);
  fleet.machines.deleted(agent.machineId);
};

describe('Join token replay / expired', () => {
  test('refused, each with its reason and counted; a new token joins', async ({ fleet, agents }) => {
    const count = async (result: string): Promise<number> =>
      (await fleet.metrics.joins.get()).values.find((value) => value.labels.result === result)?.value ?? 0;
    const created = await fleet.joining.create({ workspaceId: null }, 'default');
    const secret = secretOf(created.joinToken);
    await agents.stranger().join(secret);
    expect(await textOf(agents.stranger().join(secret, randomUUID(), 'thief'))).toMatch(/used already; create a new/);
    expect(await textOf(agents.stranger().join('made-up'))).toMatch(/of no machine here/);
    const late = await fleet.joining.create({ workspaceId: null }, 'default');
    fleet.clock.aheadMs = 31 * MINUTE_MS;
    expect(await textOf(agents.stranger().join(secretOf(late.joinToken)))).toMatch(/expired; create a new/);
    for (const result of ['joined', 'replayed', 'unknown', 'expired']) expect(await count(result)).toBe(1);
    const again = await fleet.joining.create({ workspaceId: null }, 'default');
    expect(await agents.stranger().join(secretOf(again.joinToken))).toMatchObject({ machineId: again.machineId });
  });
});

describe('a credential and its successor', () => {
  test('the old one counts until the new one was used, however often that was asked for', async ({ agents }) => {
    const agent = await agents.joined();
    const old = agent.credential;
    await agent.renew();
    const successor = await agent.renew();
    const control = await agent.connect();
    control.stream.end();
    agent.credential = successor;
    await agent.connect();
    agent.credential = old;
    expect(await refusal(agent)).toBe(status.UNAUTHENTICATED);
    expect(await codeOf(agent.renew())).toBe(status.UNAUTHENTICATED);
  });

  test('beside a successor that nobody uses it counts for five minutes', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const old = agent.credential;
    const successor = await agent.renew();
    fleet.clock.aheadMs = 6 * MINUTE_MS;
    expect(await refusal(agent)).toBe(status.UNAUTHENTICATED);
    agent.credential = successor;
    await agent.connect();
    agent.credential = old;
    expect(await refusal(agent)).toBe(status.UNAUTHENTICATED);
  });
});

describe('a machine without a credential that counts', () => {
  test('gets one by the key it joined with, and those of before count no more', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const old = agent.credential;
    await agent.connect();
    const { credential } = await agent.prove();
    expect(await refusal(agent)).toBe(status.UNAUTHENTICATED);
    agent.credential = credential;
    await agent.connect();
    await becomes(fleet, agent, 'READY');
    expect(old).not.toBe(credential);
  });

  test('is refused with another key, for another machine, and after 30 days with the cure', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const other = await agents.joined();
    await agent.connect();
    expect(await codeOf(other.prove(agent.machineId))).toBe(status.UNAUTHENTICATED);
    expect(await codeOf(other.prove('nobody'))).toBe(status.UNAUTHENTICATED);
    fleet.clock.aheadMs = 29 * DAY_MS;
    expect((await agent.prove()).credential).not.toBe('');
    fleet.clock.aheadMs = 31 * DAY_MS;
    expect(await textOf(agent.prove())).toMatch(/away for more than 30 days: delete it, create a new one/);
  });
});

describe('a deleted machine', () => {
  test('is told so in a signed word on its session, on the next stream and for its key, and nobody else is', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    const other = await agents.joined();
    const { installationKey } = agent;
    const control = await agent.connect();
    const bystander = await other.connect();
    await deleted(fleet, agent);
    const told = await control.until('the revocation', (message) => message.revoked);
    await control.over();
    const next = agent.control();
    await next.over();
    const again = next.messages.find((message) => message.revoked)?.revoked;
    const proof = await agent.prove();
    expect(proof.credential).toBe('');
    for (const one of [told, again, proof.revoked]) {
      expect(one?.machineId).toBe(agent.machineId);
      expect(await isRevocation(one?.statement ?? '', agent.machineId, installationKey)).toBe(true);
      expect(await isRevocation(one?.statement ?? '', other.machineId, installationKey)).toBe(false);
    }
    // A credential, and a challenge, are signed by the same key and are no revocations.
    expect(await isRevocation(agent.credential, agent.machineId, installationKey)).toBe(false);
    agent.credential = 'made.up.altogether';
    const stranger = agent.control();
    await stranger.over();
    expect(stranger.messages).toEqual([]);
    expect(bystander.messages.some((message) => message.revoked)).toBe(false);
    expect(health(fleet, other)).toBe('READY');
  });
});

describe('Stolen credential', () => {
  test('the old session superseded is visible; revoke works at once', async ({ fleet, agents }) => {
    const owner = await agents.joined();
    const thief = agents.stranger();
    Object.assign(thief, { machineId: owner.machineId, credential: owner.credential });
    const contested = async (): Promise<number> =>
      (await fleet.metrics.disconnects.get()).values.find((value) => value.labels.reason === 'contested')?.value ?? 0;
    const first = await owner.connect([], 'owner');
    const taken = await thief.connect([], 'thief');
    await first.over();
    expect(first.messages.some((message) => message.superseded)).toBe(true);
    // An agent that takes another's place counts as a restart. When the
    // first one comes back after that, two agents hold the identity.
    expect(await contested()).toBe(0);
    const back = await owner.connect([], 'owner');
    await taken.over();
    expect(await contested()).toBe(1);
    const [listed] = (await fleet.joining.list({ workspaceId: null })).filter(
      ({ machineId }) => machineId === owner.machineId,
    );
    expect(listed?.conditions).toContain('Unauthorized');
    await deleted(fleet, owner);
    await back.over();
    for (const one of [owner, thief]) {
      expect(await refusal(one)).toBe(status.UNAUTHENTICATED);
      expect(await codeOf(one.renew())).toBe(status.UNAUTHENTICATED);
    }
  });
});

test('a result of another machine’s attempt changes nothing, whoever told it the token', async ({ fleet, agents }) => {
  const agent = await agents.joined();
  const { target, entry, tasks } = await serving(fleet, agent);
  const other = await agents.joined();
  await other.connect();
  const submission = await fleet.process.submissions.submit(target, { input: '{}' });
  if (submission.kind !== 'accepted') throw new Error(submission.kind);
  const run = await tasks.until('the task', (message) => message.run);
  const forged = other.tasks();
  forged.stream.write({ report: { running: [], finished: [] } });
  await forged.until('the answer to the report', (message) => message.known);
  const result = { taskId: run.taskId, token: run.token, containerId: entry.row.id, outcome: 'ok', started: true };
  forged.stream.write({ result: { ...result, body: Buffer.from('"forged"') } });
  await forged.until('that it is not wanted again', (message) => message.acked);
  tasks.stream.write({ result: { ...result, body: Buffer.from('"true"') } });
  await waitFor(() => tasks.messages.some((message) => message.acked), 'the true result is taken');
  expect(seenByCaller(await submission.finished)).toEqual({ status: 'COMPLETE', httpStatus: 200, body: '"true"' });
});
