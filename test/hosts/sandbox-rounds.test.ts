// Sandboxes in numbers: 30 at once, and 20 rounds of kill -9 of the scheduler or the agent while sandboxes are made,
// used and ended. Afterwards nothing is left, and every limit is given back.
import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect } from 'vitest';
import { Platform, jsonOf } from '../helpers/platform.ts';
import type { Daemon } from '../helpers/platform.ts';
import {
  idsInDocker,
  liveIds,
  makeSandbox,
  nothingLeft,
  runIn,
  sandboxStub,
  stopSandbox,
} from '../helpers/sandboxes.ts';
import { docker, test as base, waitFor } from '../helpers/services.ts';

const AT_ONCE = 30;
const ROUNDS = 20;
/** Rounds go on until so many sandboxes were used: a busy machine starts few of them between two kills. */
const LEAST_USED = 6;
const MOST_ROUNDS = 60;
const USERS = 3;
const MOST_SANDBOXES = 8;
const TTL_SECONDS = 15;
const TRIES = 10;

const test = base.extend('platform', { scope: 'file' }, async ({ postgres }, { onCleanup }): Promise<Platform> => {
  const platform = new Platform(await docker(), (daemon) =>
    daemon === 'agent'
      ? { LONGSHORE_AGENT_CPU: '16', LONGSHORE_AGENT_MEMORY: '16384' }
      : { DATABASE_URL: postgres.url, LONGSHORE_RESTART_GRACE_SECONDS: '10' },
  );
  onCleanup(() => platform.stop());
  await platform.start();
  return platform;
});

/** Volumes and networks of the machine. */
async function thingsOf(platform: Platform): Promise<readonly string[]> {
  const { client } = platform.engine;
  const filters = { label: [`io.longshore.machine=${platform.machineId() ?? ''}`] };
  const volumes = (await client.listVolumes({ filters })).Volumes ?? [];
  const networks = await client.listNetworks({ filters: { name: [platform.network] } });
  return [...volumes.map(({ Name }) => Name), ...networks.map(({ Name }) => Name)].toSorted();
}

test(`${AT_ONCE} sandboxes at once are made, used and ended, and nothing is left`, async ({ platform }) => {
  const stubId = await sandboxStub(platform, { name: 'many' });
  const first = await makeSandbox(platform, stubId);
  await runIn(platform, first, 'true');
  const before = await thingsOf(platform);
  const ids = await Promise.all(Array.from({ length: AT_ONCE }, () => makeSandbox(platform, stubId)));
  expect(new Set(ids).size).toBe(AT_ONCE);
  await Promise.all(ids.map((id) => platform.gateway(`/pods/${id}/connect`, {})));
  await Promise.all(
    ids.map(async (id, n) => {
      const data = Buffer.from(`of ${n}`).toString('base64');
      await platform.gateway(`/pods/${id}/files/upload`, { containerPath: '/tmp/own', data });
      expect(await runIn(platform, id, 'cat /tmp/own; exit 4')).toMatchObject({ exitCode: 4, stdout: `of ${n}` });
    }),
  );
  expect((await liveIds(platform)).length).toBe(AT_ONCE + 1);
  expect(await Promise.all(ids.map((id) => stopSandbox(platform, id)))).toEqual(ids.map(() => true));
  await nothingLeft(platform, ids);
  expect(await thingsOf(platform)).toEqual(before);
  expect(await runIn(platform, first, 'echo still')).toMatchObject({ stdout: 'still\n' });
  expect(await stopSandbox(platform, first)).toBe(true);
  await nothingLeft(platform, [first]);
}, 240_000);

/** Makes, uses and ends sandboxes meanwhile, and bears every failure. */
class User {
  readonly made = new Set<string>();
  readonly ended = new Set<string>();
  used = 0;
  readonly wrong: string[] = [];
  readonly #platform: Platform;
  readonly #stubId: string;

  constructor(platform: Platform, stubId: string) {
    this.#platform = platform;
    this.#stubId = stubId;
  }

  async work(until: AbortSignal): Promise<void> {
    while (!until.aborted) await this.#once().catch(() => sleep(100));
  }

  async #once(): Promise<void> {
    const platform = this.#platform;
    const containerId = await makeSandbox(platform, this.#stubId);
    this.made.add(containerId);
    const mark = String(randomInt(1e9));
    for (let tries = 0; tries < TRIES; tries += 1) {
      const told = await runIn(platform, containerId, `printf ${mark}; exit 2`).catch(() => sleep(200));
      if (told === undefined) continue;
      this.used += 1;
      if (told.stdout !== mark || told.exitCode !== 2) this.wrong.push(`${mark}: ${JSON.stringify(told)}`);
      break;
    }
    // A part is left to its time to live.
    if (randomInt(4) > 0 && (await stopSandbox(platform, containerId))) this.ended.add(containerId);
  }
}

const round = { said: '' };
afterEach(() => void process.stderr.write(`${round.said}\n`));

test(`${ROUNDS} times kill -9 of the scheduler or the agent: what was ended is gone, what was left ends, and limits are given back`, async ({
  platform,
}) => {
  const limits = `/api/v1/workspace/${platform.workspaceId}/limits`;
  const set = (sandboxes: number | null) => platform.call(limits, { method: 'PUT', body: { counts: { sandboxes } } });
  expect((await set(MOST_SANDBOXES)).status).toBe(200);
  const stubId = await sandboxStub(platform, { name: 'killed', keepWarmSeconds: TTL_SECONDS });
  const users = Array.from({ length: USERS }, () => new User(platform, stubId));
  const over = new AbortController();
  const work = users.map((user) => user.work(over.signal));
  const kills = { scheduler: 0, agent: 0 };
  const restart = async (daemon: Daemon): Promise<void> => {
    await daemon.kill();
    kills[daemon.name as 'scheduler' | 'agent'] += 1;
    await sleep(randomInt(500));
    const start = (): Promise<unknown> => (daemon === platform.scheduler ? platform.startScheduler() : daemon.start());
    // A start that finds the database or the engine too slow is repeated, as systemd does.
    await start().catch(start).catch(start);
  };
  const sum = (of: (user: User) => number): number => users.reduce((so, user) => so + of(user), 0);
  const used = (): number => sum((user) => user.used);
  for (let n = 0; n < ROUNDS || (used() < LEAST_USED && n < MOST_ROUNDS); n += 1) {
    // Moments of a sandbox's life lie within it.
    await sleep(randomInt(5_000));
    const which = randomInt(5);
    if (which === 0) await Promise.all([restart(platform.agent), restart(platform.scheduler)]);
    else await restart(which < 3 ? platform.scheduler : platform.agent);
  }
  over.abort();
  await Promise.all(work);
  round.said = `kills: ${JSON.stringify(kills)}; made ${sum(({ made }) => made.size)}, used ${used()}, ended ${sum(({ ended }) => ended.size)}`;
  expect(users.flatMap(({ wrong }) => wrong)).toEqual([]);
  expect(used(), round.said).toBeGreaterThanOrEqual(LEAST_USED);
  await nothingLeft(
    platform,
    users.flatMap(({ ended }) => [...ended]),
    120_000,
  );
  // A sandbox whose answer was lost is in no list of ours: none at all may be there.
  await waitFor(
    async () => [...(await liveIds(platform)), ...(await idsInDocker(platform))].length === 0,
    'those that nobody ended have ended by their time to live',
    120_000,
  ).catch(async (error: unknown) => {
    const left = { rows: await liveIds(platform), docker: await idsInDocker(platform) };
    throw new Error(JSON.stringify(left), { cause: error });
  });
  await nothingLeft(
    platform,
    users.flatMap(({ made }) => [...made]),
  );
  const { counts } = jsonOf<{ counts: { sandboxes: { used: number } } }>(await platform.call(limits));
  expect(counts.sandboxes.used).toBe(0);
  const again = await Promise.all(Array.from({ length: MOST_SANDBOXES }, () => makeSandbox(platform, stubId)));
  expect(jsonOf(await platform.call('/api/v1/gateway/pods', { body: { stubId } }))).toMatchObject({ ok: false });
  for (const id of again) expect(await runIn(platform, id, 'echo x')).toMatchObject({ stdout: 'x\n' });
  for (const id of again) expect(await stopSandbox(platform, id)).toBe(true);
  await nothingLeft(platform, again);
}, 900_000);
