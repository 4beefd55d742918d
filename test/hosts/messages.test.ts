// Rows of the failure table about the link, between a real agent on a simulated host and a real scheduler. The rows:
// messages that are lost, messages that come twice, and messages of another clock.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished } from 'vitest';
import { LinkRelay } from '../helpers/hosts/link-relay.ts';
import { testOnHosts, whyNoHosts } from '../helpers/hosts.ts';
import type { HostsPlatform } from '../helpers/hosts.ts';
import { tempDirectory, waitFor } from '../helpers/services.ts';

const sockets = tempDirectory('relay');
const ofScheduler = join(sockets.path, 's', 'link.sock');
const ofAgent = join(sockets.path, 'a', 'link.sock');
mkdirSync(join(sockets.path, 'a'), { mode: 0o700 });

const test = testOnHosts({
  count: 1,
  settings: { LONGSHORE_LINK_SOCKET: ofScheduler },
  agentSettings: () => ({ LONGSHORE_LINK_SOCKET: ofAgent }),
}).extend('relay', { scope: 'file' }, async ({ installation: fleet }, { onCleanup }): Promise<LinkRelay> => {
  const relay = await LinkRelay.start(ofAgent, ofScheduler);
  onCleanup(() => {
    relay.stop();
    sockets.remove();
  });
  // The agents joined before the relay was there; their next sessions go through it.
  for (const { agent } of fleet.members) {
    await agent.stop();
    await agent.start();
  }
  await fleet.ready();
  return relay;
});

async function queueOf(fleet: HostsPlatform, name: string) {
  return fleet.deploy({
    app: 'counted.py',
    handler: 'handler',
    name,
    stubType: 'taskqueue/deployment',
    keepWarmSeconds: 120,
    retries: 3,
    autoscaler: { type: 'queue_depth', maxContainers: 1, tasksPerContainer: 100 },
  });
}

/** The first message of each of these kinds is lost, once. */
function loseFirst(relay: LinkRelay, kinds: readonly string[]): void {
  const lost = new Set(kinds);
  relay.done.length = 0;
  relay.fate = (kind) => (kind.split('+').some((one) => lost.delete(one)) ? 'lose' : 'pass');
  onTestFinished(() => {
    relay.fate = () => 'pass';
  });
}

describe.skipIf(whyNoHosts !== undefined)('Lost ack / duplicate delivery', () => {
  test('every message twice: one container, and each task runs once', async ({ fleet, relay }) => {
    relay.fate = (kind) => (kind === 'hello' || kind === 'welcome' || kind === 'report' ? 'pass' : 'twice');
    onTestFinished(() => {
      relay.fate = () => 'pass';
    });
    const deployment = await queueOf(fleet, 'twice');
    const keys = Array.from({ length: 20 }, (_value, at) => `twice-${at}`);
    const ids = await Promise.all(keys.map((key) => fleet.put(deployment, { key, seconds: 0.05 })));
    for (const id of ids) await fleet.taskIs(id, 'COMPLETE', 60_000);
    const runs = await fleet.runs(deployment);
    expect(keys.map((key) => runs.get(key))).toEqual(keys.map(() => 1));
    expect(await fleet.containers(deployment)).toHaveLength(1);
    for (const kind of ['desired', 'ack', 'proceed', 'status', 'run', 'started', 'result', 'acked'])
      expect(relay.done.join(' ')).toContain(kind);
  });

  for (const kind of ['ack', 'proceed', 'desired']) {
    test(`a lost ${kind} is repeated: the container starts, and is one`, async ({ fleet, relay }) => {
      loseFirst(relay, [kind]);
      const deployment = await queueOf(fleet, `lost-${kind}`);
      const id = await fleet.put(deployment, { key: kind, seconds: 0 });
      await fleet.taskIs(id, 'COMPLETE', 60_000);
      expect(relay.done).toHaveLength(1);
      expect(await fleet.containers(deployment)).toHaveLength(1);
      expect((await fleet.runs(deployment)).get(kind)).toBe(1);
    });
  }

  test('a task whose order is lost goes back to its queue, and runs once', async ({ fleet, relay }) => {
    const deployment = await queueOf(fleet, 'lost-run');
    await fleet.taskIs(await fleet.put(deployment, { key: 'first', seconds: 0 }), 'COMPLETE', 60_000);
    loseFirst(relay, ['run']);
    const id = await fleet.put(deployment, { key: 'lost', seconds: 0 });
    await waitFor(() => relay.done.length === 1, 'the order is lost');
    await fleet.taskIs(id, 'COMPLETE', 60_000);
    expect((await fleet.runs(deployment)).get('lost')).toBe(1);
  });

  test('an acknowledgement of a result that is lost: the result is said again, and counts once', async ({
    fleet,
    relay,
  }) => {
    const deployment = await queueOf(fleet, 'lost-acked');
    loseFirst(relay, ['acked']);
    const id = await fleet.put(deployment, { key: 'acked', seconds: 0 });
    await fleet.taskIs(id, 'COMPLETE', 60_000);
    await waitFor(() => relay.done.length === 1, 'the acknowledgement is lost');
    // The next session settles it.
    for (const { agent } of fleet.members) {
      await agent.kill();
      await agent.start();
    }
    await fleet.ready();
    expect(await fleet.task(id)).toMatchObject({ status: 'COMPLETE' });
    expect((await fleet.runs(deployment)).get('acked')).toBe(1);
    await fleet.taskIs(await fleet.put(deployment, { key: 'next', seconds: 0 }), 'COMPLETE', 60_000);
  });
});

describe.skipIf(whyNoHosts !== undefined)('Clock skew', () => {
  test('above 5 s it is said, above 30 s nothing is placed there; what runs and what is timed goes on; set right, it is over', async ({
    fleet,
    relay,
  }) => {
    const [member] = fleet.members;
    if (member === undefined) throw new Error('there is no host');
    onTestFinished(() => {
      relay.skewMs = 0;
    });
    const deployment = await queueOf(fleet, 'skewed');
    await fleet.taskIs(await fleet.put(deployment, { key: 'first', seconds: 0 }), 'COMPLETE', 60_000);
    const said = (): boolean => member.agent.log().includes("clock is not the scheduler's");
    relay.skewMs = -10_000;
    await waitFor(said, 'it is said', 30_000);
    expect(await member.host.hasCondition('ClockSkew')).toBe(false);
    relay.skewMs = 40_000;
    await waitFor(() => member.host.hasCondition('ClockSkew'), 'the agent says ClockSkew', 30_000);
    // The present container serves on: nothing here is timed by that clock.
    await fleet.taskIs(await fleet.put(deployment, { key: 'skewed', seconds: 1 }), 'COMPLETE', 30_000);
    expect(await fleet.inHealth('READY')).toBe(1);
    const other = await queueOf(fleet, 'not-placed');
    const id = await fleet.put(other, { key: 'other', seconds: 0 });
    const waiting = await waitFor(
      async () => (await fleet.containerViews()).find(({ deploymentId }) => deploymentId === other.deploymentId),
      'its container is wanted',
    );
    await waitFor(
      async () => (await fleet.containerSection(waiting.containerId)).rejections['condition'] === 1,
      'it has no place, for the condition',
      30_000,
    );
    relay.skewMs = 0;
    await fleet.taskIs(id, 'COMPLETE', 60_000);
    expect(await member.host.hasCondition('ClockSkew')).toBe(false);
  });
});
