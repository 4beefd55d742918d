// Enrolment tokens and the hosts of machines, by the real protocol: many hosts by one token, its bound, its end; a disk
// in another host, a copy beside the original, and changes that are no other host.
import { randomUUID } from 'node:crypto';
import { status } from '@grpc/grpc-js';
import { describe, expect } from 'vitest';
import { identityFrom } from '#shared/domain/host-identity.ts';
import type { HostIdentity } from '#shared/domain/host-identity.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { SYSTEM } from '#scheduler/workspaces/events/audit.ts';
import { deleteMachine } from '#scheduler/stores/store/queries/machines.ts';
import { getOrCreatePool } from '#scheduler/stores/store/queries/pools.ts';
import type { Agent, Fleet } from './fleet-fixture.ts';
import { becomes, codeOf, health, test } from './fleet-fixture.ts';
import { aWorkspace } from './store-fixture.ts';

const DAY_MS = 86_400_000;
const UUID = '4c4c4544-0042-3510-8034-b4c04f4d3232';
const OTHER_UUID = '4c4c4544-0042-3510-8034-b4c04f4d9999';
const MAC = 'b0:26:28:11:22:33';
const OTHER_MAC = 'b0:26:28:99:99:99';

const textOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => '',
    (error: unknown) => (error as { details?: string }).details ?? String(error),
  );
const shows = (agent: Agent, hostname: string, identity: Partial<HostIdentity>): void => {
  agent.host = { hostname, identity: identityFrom(identity) };
};
const refusal = async (agent: Agent): Promise<readonly [number | undefined, string]> => {
  const control = agent.control();
  await control.over();
  return [control.error?.code, control.error?.details ?? ''];
};

/** A token of a pool made for it. */
async function aToken(
  fleet: Fleet,
  given: { readonly maxMachines?: number; readonly workspaceId?: WorkspaceId | null } = {},
) {
  const { maxMachines = 50, workspaceId = null } = given;
  const name = `t-${randomUUID().slice(0, 8)}`;
  await getOrCreatePool(fleet.db, { name, workspaceId });
  const request = { name, poolName: name, maxMachines, lifetimeMs: 30 * DAY_MS };
  const made = await fleet.enrolment.create({ workspaceId }, request, SYSTEM);
  if (made.kind !== 'created') throw new Error(made.kind);
  return { name, secret: made.secret, id: made.token.id };
}
/** A clone of an agent's disk: the same machine, credential and key, elsewhere. */
function cloneOf(original: Agent, stranger: Agent): Agent {
  return Object.assign(stranger, {
    machineId: original.machineId,
    credential: original.credential,
    keys: original.keys,
  });
}

describe('a token for many hosts', () => {
  test('50 hosts that come at once join, and of 60 the others are refused with the bound', async ({
    fleet,
    agents,
  }) => {
    const { name, secret } = await aToken(fleet);
    const hosts = Array.from({ length: 60 }, () => agents.stranger());
    const answers = await Promise.allSettled(hosts.map((host) => host.join(secret)));
    const joined = answers.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    expect(joined).toHaveLength(50);
    expect(new Set(joined.map(({ machineId }) => machineId)).size).toBe(50);
    expect(new Set(joined.map(({ poolName }) => poolName))).toEqual(new Set([name]));
    const refused = answers.find((one) => one.status === 'rejected')?.reason as
      | { readonly code: number; readonly details: string }
      | undefined;
    // Agents go on trying after this status: room may come.
    expect(refused?.code).toBe(status.RESOURCE_EXHAUSTED);
    expect(refused?.details).toContain(`enrolment token ${name} admits 50 machines, and 50 have joined`);
    const [first] = hosts.filter(({ machineId }) => machineId !== '');
    await first?.connect();
    await becomes(fleet, first as Agent, 'READY');
    // A deleted machine leaves its place to another host.
    expect(await deleteMachine(fleet.db, (first as Agent).machineId)).toBe(true);
    await agents.stranger().join(secret);
    expect(await textOf(agents.stranger().join(secret))).toContain('50 have joined');
    const [token] = (await fleet.enrolment.list({ workspaceId: null })).filter((one) => one.name === name);
    expect(token).toMatchObject({ machines: 50, joined: 51, state: 'active' });
  });

  test('after its revocation every host is refused with the reason, and its machines go on', async ({
    fleet,
    agents,
  }) => {
    const { name, secret } = await aToken(fleet);
    const agent = agents.stranger();
    await agent.join(secret);
    await agent.connect();
    expect(await fleet.enrolment.revoke({ workspaceId: null }, name, SYSTEM)).toMatchObject({ state: 'revoked' });
    const late = agents.stranger();
    expect(await textOf(late.join(secret))).toBe(
      `enrolment token ${name} was revoked; make another with \`longshore enrol-token create\``,
    );
    expect(await codeOf(late.join(secret))).toBe(status.PERMISSION_DENIED);
    await becomes(fleet, agent, 'READY');
    await agent.connect();
  });

  test('an expired token, and a secret of nobody, are refused', async ({ fleet, agents }) => {
    const { name, secret } = await aToken(fleet);
    expect(await textOf(agents.stranger().join('lse1.f.made-up'))).toContain('is of no pool here');
    fleet.clock.aheadMs = 31 * DAY_MS;
    expect(await textOf(agents.stranger().join(secret))).toContain(`enrolment token ${name} has expired`);
  });

  test('a host whose answer was lost gets it again; another with its nonce is another machine', async ({
    fleet,
    agents,
  }) => {
    const { secret } = await aToken(fleet, { maxMachines: 2 });
    const [host, twin] = [agents.stranger(), agents.stranger()];
    shows(host, 'a', { instanceId: 'aws:i-1' });
    shows(twin, 'b', { instanceId: 'aws:i-2' });
    const first = await host.join(secret, 'nonce');
    expect((await host.join(secret, 'nonce')).machineId).toBe(first.machineId);
    expect((await twin.join(secret, 'nonce')).machineId).not.toBe(first.machineId);
    // Also when the token is full.
    expect((await host.join(secret, 'nonce')).machineId).toBe(first.machineId);
  });

  test("another owner sees and revokes none of it, and its name and pool are the owner's own", async ({
    fleet,
    agents,
  }) => {
    const [ours, theirs] = [await aWorkspace(fleet.db), await aWorkspace(fleet.db)];
    const { name, secret, id } = await aToken(fleet, { workspaceId: ours.id });
    for (const workspaceId of [theirs.id, null]) {
      expect((await fleet.enrolment.list({ workspaceId })).filter((one) => one.id === id)).toEqual([]);
      for (const reference of [id, name])
        expect(await fleet.enrolment.revoke({ workspaceId }, reference, SYSTEM)).toBeUndefined();
      const request = { name, poolName: name, maxMachines: 1, lifetimeMs: DAY_MS };
      expect(await fleet.enrolment.create({ workspaceId }, request, SYSTEM)).toEqual({ kind: 'no_pool' });
    }
    const agent = agents.stranger();
    await agent.join(secret);
    expect(fleet.machines.get(agent.machineId)?.row).toMatchObject({ poolWorkspaceId: ours.id, enrolmentTokenId: id });
  });

  test('an owner has a bounded number of tokens, and no two active ones of a name', async ({ fleet }) => {
    const workspaceId = (await aWorkspace(fleet.db)).id;
    const { name } = await aToken(fleet, { workspaceId });
    const create = (named: string) =>
      fleet.enrolment.create(
        { workspaceId },
        { name: named, poolName: name, maxMachines: 1, lifetimeMs: DAY_MS },
        SYSTEM,
      );
    expect(await create(name)).toEqual({ kind: 'name_taken' });
    const made = await Promise.all(Array.from({ length: 110 }, (_, at) => create(`n-${at}`)));
    expect(made.filter(({ kind }) => kind === 'created')).toHaveLength(99);
    expect(made.filter(({ kind }) => kind === 'too_many')).toHaveLength(11);
    await fleet.enrolment.revoke({ workspaceId }, name, SYSTEM);
    expect(await create(name)).toMatchObject({ kind: 'created' });
  });
});

describe('the host of a machine', () => {
  test('a copy of its disk in another host is refused beside the original, which goes on; both are named', async ({
    fleet,
    agents,
  }) => {
    const original = await agents.joined();
    shows(original, 'gpu-7', { instanceId: 'aws:i-7', uuid: UUID, macs: [MAC] });
    const control = await original.connect();
    const other = await agents.joined();
    shows(other, 'gpu-8', { instanceId: 'aws:i-8', uuid: OTHER_UUID, macs: [OTHER_MAC] });
    await other.connect();
    const clone = cloneOf(original, agents.stranger());
    shows(clone, 'gpu-8', { instanceId: 'aws:i-8', uuid: OTHER_UUID, macs: [OTHER_MAC] });
    const wanted = `this disk carries the identity of machine ${original.machineId}, which is h (instance i-7); this host is gpu-8 (instance i-8, machine ${other.machineId})`;
    expect(await refusal(clone)).toEqual([status.PERMISSION_DENIED, wanted]);
    // Neither its credential nor its key gives the copy another one.
    expect(await codeOf(clone.renew())).toBe(status.PERMISSION_DENIED);
    expect(await codeOf(clone.prove())).toBe(status.PERMISSION_DENIED);
    expect(control.ended).toBe(false);
    expect(health(fleet, original)).toBe('READY');
    const [listed] = (await fleet.joining.list({ workspaceId: null })).filter(
      ({ machineId }) => machineId === original.machineId,
    );
    expect(listed?.conditions).toContain('CopiedDisk');
    expect(listed?.conditionWords['CopiedDisk']).toContain('gpu-8 (instance i-8');
    expect((await original.prove()).credential).not.toBe('');
  });

  test('a disk that moved is refused also when nobody else is there', async ({ agents }) => {
    const original = await agents.joined();
    shows(original, 'gpu-7', { uuid: UUID, macs: [MAC] });
    (await original.connect()).stream.end();
    shows(original, 'gpu-9', { uuid: OTHER_UUID, macs: [MAC] });
    expect((await refusal(original))[1]).toContain(`UUID ${OTHER_UUID}`);
  });

  test('a replaced card, an id that is told later and an agent that finds out nothing are no other host', async ({
    fleet,
    agents,
  }) => {
    const agent = await agents.joined();
    await agent.connect();
    expect(fleet.machines.get(agent.machineId)?.row.hostIdentity).toBeNull();
    for (const identity of [
      { uuid: UUID, macs: [MAC] },
      { uuid: UUID, macs: [OTHER_MAC] },
      { instanceId: 'aws:i-7', uuid: UUID, macs: [OTHER_MAC] },
      { macs: [OTHER_MAC] },
    ]) {
      shows(agent, 'gpu-7', identity);
      await agent.connect();
    }
    agent.host = undefined;
    await agent.connect();
    expect((await fleet.machines.byId(agent.machineId))?.hostIdentity).toEqual({
      instanceId: 'aws:i-7',
      uuid: UUID,
      macs: [OTHER_MAC],
    });
  });

  test('where hosts share a UUID, their cards tell them apart', async ({ agents }) => {
    const shared = '4c4c4544-1111-3510-8034-b4c04f4d1111';
    const [first, second] = [await agents.joined(), await agents.joined()];
    shows(first, 'a', { uuid: shared, macs: [MAC] });
    shows(second, 'b', { uuid: shared, macs: [OTHER_MAC] });
    for (const agent of [first, second]) await agent.connect();
    const moved = cloneOf(first, agents.stranger());
    shows(moved, 'b', { uuid: shared, macs: [OTHER_MAC] });
    expect((await refusal(moved))[0]).toBe(status.PERMISSION_DENIED);
    await first.connect();
  });
});
