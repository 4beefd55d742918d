// A redeploy with an `on_start` of 20 s under ten callers, on a real agent and engine; and a leader that is killed in
// the middle of a rollout, with simulated agents.
import { describe, expect } from 'vitest';
import { jsonOf, test } from '../helpers/platform.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import type { Replica } from '../helpers/replicas.ts';
import { RolloutApp, slowestMs } from '../helpers/rollout-app.ts';
import { test as servers, waitFor } from '../helpers/services.ts';

const CALLERS = 10;
const WARM_MS = 10_000;
const WAIT_MS = 60_000;

describe('a redeploy with an on_start of 20 s', () => {
  test('costs none of ten callers more than a warm call', async ({ platform }) => {
    const app = new RolloutApp(platform, 'slow-start');
    const started = 'time.sleep(20)';
    expect(await app.deploy(1, started)).toMatchObject({ code: 0 });
    expect(await app.call()).toMatchObject({ status: 200, version: 1 });
    const untilMs = performance.now() + WARM_MS;
    const warm = await app.callers(CALLERS, () => performance.now() > untilMs);

    let over = false;
    const calling = app.callers(CALLERS, () => over);
    const begun = performance.now();
    expect(await app.deploy(2, started)).toMatchObject({ code: 0 });
    const tookMs = performance.now() - begun;
    const last = performance.now();
    await waitFor(
      async () => (await app.call()).version === 2 && performance.now() > last + 2000,
      'v2 serves',
      WAIT_MS,
    );
    over = true;
    const calls = await calling;

    const line = (what: string, some: typeof calls): string =>
      `${what}: ${some.length} calls, the slowest took ${Math.round(slowestMs(some))} ms`;
    process.stdout.write(
      `redeploy of ${Math.round(tookMs / 1000)} s; ${line('warm', warm)}; ${line('redeploy', calls)}\n`,
    );
    expect(calls.filter(({ status }) => status !== 200)).toEqual([]);
    expect(new Set(calls.map(({ version }) => version))).toEqual(new Set([1, 2]));
    expect(tookMs).toBeGreaterThan(20_000);
    // A second beside the slowest warm call: the machine has other work in this time.
    expect(slowestMs(calls)).toBeLessThan(slowestMs(warm) + 1000);
  });
});

servers(
  'a leader that is killed in the middle of a rollout: the next one ends it, and every replica sends calls there',
  { timeout: 180_000 },
  async ({ postgres, redis, onTestFinished }) => {
    const set = new ReplicaSet(postgres, redis);
    onTestFinished(() => set.stop());
    for (let n = 0; n < 3; n += 1) await set.add();
    const held = Promise.withResolvers<string>();
    let heldStub = '';
    await set.agent({
      start: (containerId) => (heldStub !== '' && containerId.includes(heldStub) ? held.promise : Promise.resolve('')),
    });
    const leader = await waitFor(() => set.leader(), 'somebody leads', WAIT_MS);
    const deploy = async (at: Replica, version: number): Promise<{ deploymentId: string; stubId: string }> => {
      const stub = await set.call(at, '/api/v1/gateway/stubs', {
        body: {
          stubType: 'endpoint/deployment',
          name: 'rolled',
          handler: 'app:handler',
          cpu: 100,
          memory: 64,
          keepWarmSeconds: 600,
          env: [`V=${version}`],
        },
      });
      const { stubId } = jsonOf<{ stubId: string }>(stub);
      if (version === 2) heldStub = stubId;
      const made = await set.call(at, '/api/v1/gateway/stubs/deploy', { body: { stubId, name: 'rolled' } });
      return { deploymentId: jsonOf<{ deploymentId: string }>(made).deploymentId, stubId };
    };
    const reaches = async (at: Replica, stubId: string): Promise<boolean> =>
      (await set.call(at, '/endpoint/rolled', { body: {} })).text.includes(stubId);
    const first = await deploy(leader, 1);
    await waitFor(() => reaches(leader, first.stubId), 'v1 serves', WAIT_MS);
    const follower = set.replicas.find((replica) => replica !== leader);
    if (follower === undefined) throw new Error('there are three');
    const second = await deploy(follower, 2);
    const stateOf = async (): Promise<unknown> => {
      const record = await set.call(follower, `/api/v1/deployment/${set.workspaceId}/${second.deploymentId}`);
      return jsonOf<{ rollout: { state: string } }>(record).rollout.state;
    };
    await waitFor(() => set.agents[0]?.present.some((id) => id.includes(second.stubId)), 'v2 starts', WAIT_MS);
    expect(await stateOf()).toBe('waiting');
    await leader.daemon.kill();
    for (const at of set.running) expect(await reaches(at, first.stubId)).toBe(true);
    held.resolve('');
    await waitFor(async () => (await stateOf()) === 'done', 'the new leader ends it', WAIT_MS);
    for (const at of set.running) await waitFor(() => reaches(at, second.stubId), `${at.name} has heard`, WAIT_MS);
  },
);
