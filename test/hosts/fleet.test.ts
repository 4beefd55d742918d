// Rows of the failure table on three simulated hosts, each a network namespace with a Docker Engine and an agent of its
// own. The rows: agents killed under load, a host that loses its power, a cable that is out for a while and for good.
import { describe, expect } from 'vitest';
import { testOnHosts, whyNoHosts } from '../helpers/hosts.ts';
import type { HostsPlatform, Member } from '../helpers/hosts.ts';
import { waitFor } from '../helpers/services.ts';

const test = testOnHosts();
const TASKS = 60;

/** Puts one held task on each member's container and waits until each runs; by member. */
async function oneHeldOnEach(fleet: HostsPlatform, name: string) {
  const { deployment, containerOf } = await fleet.onEach(name);
  const ids = await Promise.all(fleet.members.map((_member, at) => fleet.put(deployment, held(at))));
  const tasks = await Promise.all(ids.map((id) => fleet.taskIs(id, 'RUNNING', 30_000)));
  const on = new Map<Member, { taskId: string; key: string; container: string }>();
  for (const member of fleet.members) {
    const container = await containerOf(member);
    const at = tasks.findIndex((task) => task.container_id === container);
    await inHand(fleet, container, `held-${at}`);
    on.set(member, { taskId: ids[at] ?? '', key: `held-${at}`, container });
  }
  const of = (member: Member | undefined) => {
    const found = member === undefined ? undefined : on.get(member);
    if (member === undefined || found === undefined) throw new Error('a member without a task');
    return { member, ...found };
  };
  return { deployment, of, containerOf };
}

const held = (at: number) => ({ key: `held-${at}`, seconds: 0, held: true });

/** Waits until the handler has begun with the task. */
const inHand = (fleet: HostsPlatform, container: string, key: string): Promise<string> =>
  fleet.exec(container, `for i in $(seq 400); do test -e /tmp/ran-${key} && exit 0; sleep 0.05; done; exit 1`);

const letGo = (fleet: HostsPlatform, container: string, key: string): Promise<string> =>
  fleet.exec(container, `touch /tmp/go-${key}`);

describe.skipIf(whyNoHosts !== undefined)('on simulated hosts', () => {
  test('three agents take work, each on its own engine, behind sealed links', async ({ fleet }) => {
    const { deployment, containerOf } = await fleet.onEach('work');
    const containers = await Promise.all(fleet.members.map(containerOf));
    expect(new Set(containers).size).toBe(3);
    expect(await fleet.containerIds(deployment)).toEqual(containers.toSorted());
    expect(await fleet.inHealth('READY')).toBe(3);
  });

  describe('Agent crash or upgrade', () => {
    test('containers run on and are adopted in < 15 s; attempts keep their lease; no duplicate, no lost task, though each agent is killed under load', async ({
      fleet,
    }) => {
      const { deployment, containerOf } = await fleet.onEach('crash', 2);
      const before = await Promise.all(fleet.members.map(containerOf));
      const ids = await Promise.all(
        Array.from({ length: TASKS }, (_value, at) => fleet.put(deployment, { key: `load-${at}`, seconds: 0.3 })),
      );
      for (const member of [...fleet.members, ...fleet.members]) {
        await member.agent.kill();
        const fromMs = performance.now();
        await member.agent.start();
        await fleet.statusIs(member, 'available', 15_000);
        expect(performance.now() - fromMs).toBeLessThan(15_000);
      }
      for (const id of ids) await fleet.taskIs(id, 'COMPLETE', 60_000);
      const runs = await fleet.runs(deployment);
      expect(ids.map((_id, at) => [at, runs.get(`load-${at}`)])).toEqual(ids.map((_id, at) => [at, 1]));
      expect(await fleet.containerIds(deployment)).toEqual(before.toSorted());
    });
  });

  describe('Partition < 90 s', () => {
    test('SUSPECT at once, nothing new goes there; nothing moves, nothing is requeued; results kept by the agent count on return', async ({
      fleet,
    }) => {
      const { deployment, of, containerOf } = await oneHeldOnEach(fleet, 'short');
      const { member, taskId, key, container } = of(fleet.members[0]);
      await member.host.cut();
      await waitFor(async () => (await fleet.inHealth('SUSPECT')) === 1, 'it is SUSPECT', 5000);
      // The task ends while the machine is cut off; the test reaches the engine without the cable.
      await letGo(fleet, container, key);
      const others = fleet.members.slice(1).map(of);
      const more = await fleet.put(deployment, { key: 'more', seconds: 0 });
      await letGo(fleet, others[0]?.container ?? '', others[0]?.key ?? '');
      const served = await fleet.taskIs(more, 'COMPLETE', 20_000);
      expect(served.container_id).not.toBe(container);
      expect(await fleet.task(taskId)).toMatchObject({ status: 'RUNNING', container_id: container });
      expect(await fleet.inHealth('LOST')).toBe(0);
      await member.host.heal();
      await fleet.statusIs(member, 'available', 30_000);
      expect(await fleet.taskIs(taskId, 'COMPLETE', 20_000)).toMatchObject({ container_id: container });
      await letGo(fleet, others[1]?.container ?? '', others[1]?.key ?? '');
      await fleet.taskIs(others[1]?.taskId ?? '', 'COMPLETE', 20_000);
      expect(await containerOf(member)).toBe(container);
      const runs = await fleet.runs(deployment);
      expect(['held-0', 'held-1', 'held-2', 'more'].map((one) => runs.get(one))).toEqual([1, 1, 1, 1]);
    });
  });

  describe('Partition > 90 s', () => {
    test('LOST: attempts superseded, containers UNKNOWN, replacements elsewhere; on return stale results are refused, surplus is stopped', async ({
      fleet,
    }) => {
      const { of } = await oneHeldOnEach(fleet, 'long');
      const { member, taskId, key, container } = of(fleet.members[1]);
      const others = fleet.members.filter((one) => one !== member).map(of);
      await member.host.cut();
      await waitFor(async () => (await fleet.inHealth('LOST')) === 1, 'it is LOST', 120_000);
      expect((await fleet.containerSection(container)).machine_health).toBe('LOST');
      // The task may run on any host again: it runs on another one when one of the two there is done.
      await letGo(fleet, others[0]?.container ?? '', others[0]?.key ?? '');
      await waitFor(
        async () => (await fleet.task(taskId)).container_id === others[0]?.container,
        'it runs elsewhere',
        30_000,
      );
      // The first attempt ends on the lost machine, and says so when the cable is back.
      await letGo(fleet, container, key);
      await member.host.heal();
      await fleet.statusIs(member, 'available', 30_000);
      await waitFor(
        async () => (await member.host.containers([`io.longshore.container=${container}`])).length === 0,
        'the surplus container is gone',
        60_000,
      );
      expect(await fleet.task(taskId)).toMatchObject({ status: 'RUNNING', container_id: others[0]?.container });
      await letGo(fleet, others[0]?.container ?? '', key);
      await fleet.taskIs(taskId, 'COMPLETE', 30_000);
      await letGo(fleet, others[1]?.container ?? '', others[1]?.key ?? '');
      await fleet.taskIs(others[1]?.taskId ?? '', 'COMPLETE', 20_000);
    });
  });

  describe('Machine reboot', () => {
    test('new bootId: earlier containers FAILED host_reboot, and the task runs again', async ({ fleet }) => {
      const { of } = await oneHeldOnEach(fleet, 'reboot');
      const { member, taskId, key, container } = of(fleet.members[2]);
      const others = fleet.members.filter((one) => one !== member).map(of);
      await member.agent.kill();
      await member.host.powerCut();
      await member.host.startEngine();
      await member.agent.start();
      await fleet.statusIs(member, 'available', 30_000);
      expect((await fleet.containerSection(container)).reason).toBe('host_reboot');
      const again = await waitFor(
        async () => {
          const task = await fleet.task(taskId);
          return task.status === 'RUNNING' && task.container_id !== container && task;
        },
        'its task runs again',
        60_000,
      );
      await inHand(fleet, again.container_id, key);
      await letGo(fleet, again.container_id, key);
      await fleet.taskIs(taskId, 'COMPLETE', 30_000);
      expect(await member.host.containers([`io.longshore.container=${container}`])).toEqual([]);
      for (const other of others) await letGo(fleet, other.container, other.key);
      for (const other of others) await fleet.taskIs(other.taskId, 'COMPLETE', 30_000);
    });
  });
});
