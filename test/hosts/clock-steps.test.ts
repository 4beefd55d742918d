// No step of a clock, and no stop of a daemon, ends work that runs. Each daemon has a wall clock of its own
// (libfaketime, never the machine's), which steps while it runs. Redis does not start under libfaketime, because its
// allocator asks for the time. A step of its clock is played by the effect there: keys that lapse. Tests begin when the
// scheduler is two minutes old: before that it counts nothing as lost anyway.
/* oxlint-disable no-empty-pattern */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import type { Answer, Deployment } from '../helpers/platform.ts';
import { jsonOf, Platform } from '../helpers/platform.ts';
import { aRedis } from '../helpers/redis.ts';
import type { PrivateRedis } from '../helpers/redis.ts';
import { docker, test as base, waitFor } from '../helpers/services.ts';

const YOUNG_MS = 125_000;
/** Longer than a round of everything that judges work: the reaper's 5 s, the sweeps' 15 s, and claims' 15 s. */
const WATCHED_MS = 22_000;
/** Time limit of one test; the longest waits through three steps. */
const TEST_MS = 400_000;
const KINDS = ['endpoint', 'taskqueue', 'function'] as const;
type Kind = (typeof KINDS)[number];
type Side = 'scheduler' | 'agent';

class SteppedPlatform extends Platform {
  readonly #clocks: string;
  readonly #ownRedis: PrivateRedis;
  #startedAtMs = 0;
  #apps = new Map<Kind, Deployment>();

  constructor(engine: Awaited<ReturnType<typeof docker>>, redis: PrivateRedis) {
    const clocks = mkdtempSync(join(tmpdir(), 'clocks-'));
    super(engine, (daemon) => ({
      LD_PRELOAD: libfaketime(),
      FAKETIME_TIMESTAMP_FILE: join(clocks, daemon),
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      DONT_FAKE_MONOTONIC: '1',
      REDIS_URL: redis.url,
    }));
    this.#clocks = clocks;
    this.#ownRedis = redis;
    for (const side of ['scheduler', 'agent'] as const) this.set(side, 0);
  }

  /** Sets that daemon's wall clock ahead by so many seconds from now on. */
  set(side: Side, seconds: number): void {
    writeFileSync(join(this.#clocks, side), seconds < 0 ? `${seconds}` : `+${seconds}`);
  }

  /** The clock of Redis is set forward: everything that would lapse in that time is gone. */
  async lapse(seconds: number): Promise<void> {
    const client = this.#ownRedis.connect();
    try {
      for (const key of await client.keys('*')) {
        const leftMs = await client.pttl(key);
        if (leftMs >= 0 && leftMs < seconds * 1000) await client.del(key);
      }
    } finally {
      client.disconnect();
    }
  }

  override async start(): Promise<void> {
    this.#startedAtMs = performance.now();
    await super.start();
    for (const kind of KINDS) {
      const deployment = await this.deploy({
        app: 'counted.py',
        handler: 'handler',
        name: kind,
        stubType: `${kind}/deployment`,
        timeout: 900,
        keepWarmSeconds: 900,
        concurrentRequests: 2,
        autoscaler: { type: 'queue_depth', maxContainers: 1, tasksPerContainer: 2 },
      });
      this.#apps.set(kind, deployment);
      const first = await this.invoke(deployment, { key: 'first', seconds: 0 });
      if (kind !== 'endpoint') await this.taskIs(jsonOf<{ task_id: string }>(first).task_id, 'COMPLETE', 60_000);
    }
  }

  override async stop(): Promise<void> {
    await super.stop();
    rmSync(this.#clocks, { recursive: true, force: true });
  }

  app(kind: Kind): Deployment {
    const deployment = this.#apps.get(kind);
    if (deployment === undefined) throw new Error(`no ${kind}`);
    return deployment;
  }

  async grownUp(): Promise<void> {
    await waitFor(() => performance.now() - this.#startedAtMs > YOUNG_MS, 'the scheduler is grown up', YOUNG_MS);
  }

  /** Starts one held task of each kind, each in the hands of its container. */
  async held(key: string): Promise<{ readonly call: Promise<Answer>; readonly ids: readonly string[] }> {
    const input = { key, seconds: 0, held: true };
    const call = fetch(this.app('endpoint').url, {
      method: 'POST',
      headers: { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' },
      body: JSON.stringify(input),
    }).then(async (answer) => ({ status: answer.status, text: await answer.text(), taskId: '' }));
    call.catch(() => undefined);
    const ids: string[] = [];
    for (const kind of ['taskqueue', 'function'] as const) {
      const answer = await this.invoke(this.app(kind), input);
      ids.push(jsonOf<{ task_id: string }>(answer).task_id);
    }
    for (const kind of KINDS)
      await this.#in(kind, `for i in $(seq 600); do test -e /tmp/ran-${key} && exit 0; sleep 0.05; done; exit 1`);
    return { call, ids };
  }

  /** Expects that the tasks end, each after its only run. */
  async endOnce(key: string, { call, ids }: Awaited<ReturnType<SteppedPlatform['held']>>): Promise<void> {
    for (const kind of KINDS) await this.#in(kind, `touch /tmp/go-${key}`);
    expect(jsonOf(await call), key).toMatchObject({ runs: 1 });
    for (const id of ids) await this.taskIs(id, 'COMPLETE', 30_000);
    for (const kind of KINDS) expect(await this.#in(kind, `cat /tmp/ran-${key}`), `${key} ${kind}`).toBe('ran');
  }

  /** The containers that are there, by Docker's id and state. */
  async names(): Promise<readonly string[]> {
    return (await this.containers()).map(({ Id, State }) => `${Id} ${State}`).toSorted();
  }

  async lost(): Promise<readonly string[]> {
    const page = (await this.call('/metrics', { token: '' })).text;
    return page.split('\n').filter((line) => /^longshore_task_attempts_lost_total\S* [1-9]/.test(line));
  }

  async #in(kind: Kind, command: string): Promise<string> {
    const [info] = (await this.containers(this.app(kind))).filter(({ State }) => State === 'running');
    const container = this.engine.client.getContainer(info?.Id ?? '');
    const exec = await container.exec({
      Cmd: ['sh', '-c', command],
      AttachStdout: true,
      AttachStderr: true,
      Tty: true,
    });
    const stream = await exec.start({ Tty: true });
    let said = '';
    for await (const chunk of stream) said += String(chunk);
    const { ExitCode } = await waitFor(async () => {
      const state = await exec.inspect();
      return !state.Running && state;
    }, command);
    if (ExitCode !== 0) throw new Error(`${command} ended with ${ExitCode}: ${said}`);
    return said.trim();
  }
}

/** Set-up installs it (`npm run hosts`). */
function libfaketime(): string {
  for (const directory of readdirSync('/usr/lib')) {
    const path = join('/usr/lib', directory, 'faketime');
    try {
      if (readdirSync(path).includes('libfaketimeMT.so.1')) return join(path, 'libfaketimeMT.so.1');
    } catch {
      // The library is not in this directory.
    }
  }
  throw new Error('libfaketime is not installed: the package faketime has it');
}

const test = base.extend('platform', { scope: 'file' }, async ({}, { onCleanup }): Promise<SteppedPlatform> => {
  const redis = await aRedis();
  const platform = new SteppedPlatform(await docker(), redis);
  onCleanup(async () => {
    await platform.stop();
    await redis.stop();
  });
  await platform.start();
  await platform.grownUp();
  return platform;
});

/** Expects that none of the tasks ends within `ms`. */
async function watched(platform: SteppedPlatform, ids: readonly string[], ms = WATCHED_MS): Promise<void> {
  const untilMs = performance.now() + ms;
  await waitFor(
    async () => {
      for (const id of ids) expect((await platform.task(id)).status).toBe('RUNNING');
      return performance.now() > untilMs;
    },
    'everything runs on',
    ms + 30_000,
  );
}

describe('what runs', { timeout: TEST_MS }, () => {
  test.for([
    ['scheduler', ['scheduler']],
    ['agent', ['agent']],
    ['scheduler and agent', ['scheduler', 'agent']],
  ] as const)(
    'goes on, once, while the clock of the %s steps by ten minutes, forward and back',
    async ([, sides], { platform }) => {
      const before = await platform.names();
      for (const seconds of [600, -600, 0]) {
        const key = `${sides.join('-')}${seconds}`;
        const tasks = await platform.held(key);
        for (const side of sides) platform.set(side, seconds);
        await watched(platform, tasks.ids);
        await platform.endOnce(key, tasks);
      }
      expect(await platform.names()).toEqual(before);
      expect(await platform.lost()).toEqual([]);
    },
  );

  test('goes on, once, when the clock of Redis is set ten minutes forward', async ({ platform }) => {
    const before = await platform.names();
    const tasks = await platform.held('redis-forward');
    await platform.lapse(600);
    await watched(platform, tasks.ids, 75_000);
    await platform.endOnce('redis-forward', tasks);
    expect(await platform.names()).toEqual(before);
    expect(await platform.lost()).toEqual([]);
  });

  test('goes on, once, while the scheduler is stopped for 90 s', async ({ platform }) => {
    const before = await platform.names();
    const tasks = await platform.held('stopped-scheduler');
    platform.scheduler.freeze();
    const untilMs = performance.now() + 90_000;
    await waitFor(() => performance.now() > untilMs, 'it was stopped for 90 s', 100_000).finally(() =>
      platform.scheduler.thaw(),
    );
    await watched(platform, tasks.ids, 75_000);
    await platform.endOnce('stopped-scheduler', tasks);
    expect(await platform.names()).toEqual(before);
    expect(await platform.lost()).toEqual([]);
  });

  test('goes on, once, while the agent is stopped for 60 s', async ({ platform }) => {
    const before = await platform.names();
    const tasks = await platform.held('stopped-agent');
    platform.agent.freeze();
    await watched(platform, tasks.ids, 60_000).finally(() => platform.agent.thaw());
    await watched(platform, tasks.ids);
    await platform.endOnce('stopped-agent', tasks);
    expect(await platform.names()).toEqual(before);
    expect(await platform.lost()).toEqual([]);
  });
});
