// Attacks of a sandbox on its machine: processes without end, a full disk, output without end, all memory. Neighbours
// are answered rightly all the while, scheduler and agent stay as they were, and the sandbox can be stopped.
import { afterAll, describe, expect } from 'vitest';
import { AGENT_NODE_OPTIONS, AGENT_PROCESS_ENV } from '#shared/agent-process.ts';
import { Platform, jsonOf } from '../helpers/platform.ts';
import type { Deployment } from '../helpers/platform.ts';
import { peakDuring, residentMib } from '../helpers/resident.ts';
import { liveIds, makeSandbox, nothingLeft, runIn, sandboxStub, startIn, stopSandbox } from '../helpers/sandboxes.ts';
import { docker, test as base, waitFor } from '../helpers/services.ts';

/** Most that a daemon may grow during an attack. */
const MOST_GROWN_MIB = 128;
const CALLS = 15;
const LIMITS = {
  LONGSHORE_AGENT_CPU: '4',
  LONGSHORE_AGENT_MEMORY: '4096',
  LONGSHORE_AGENT_CONTAINER_DISK_MIB: '64',
  LONGSHORE_MIN_FREE_DISK_PERCENT: '1',
};

const FORKS = `
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
`;
const EATS = `
import time
held = []
while True:
    held.append(bytearray(8 << 20).replace(b"\\0", b"x"))
    time.sleep(0.02)
`;

interface Neighbours {
  readonly platform: Platform;
  readonly endpoint: Deployment;
  readonly box: string;
}

const test = base.extend('place', { scope: 'file' }, async ({ postgres }, { onCleanup }): Promise<Neighbours> => {
  const platform = new Platform(
    await docker(),
    (daemon) => (daemon === 'agent' ? { ...AGENT_PROCESS_ENV, ...LIMITS } : { DATABASE_URL: postgres.url }),
    { scheduler: [], agent: AGENT_NODE_OPTIONS },
  );
  onCleanup(() => platform.stop());
  await platform.start();
  const endpoint = await platform.deploy({ app: 'attacks.py', handler: 'answers', keepWarmSeconds: 600 });
  const box = await makeSandbox(platform, await sandboxStub(platform));
  return { platform, endpoint, box };
});

const said: string[] = [];
afterAll(() => void process.stderr.write(`${said.join('\n')}\n`));

const shown = (times: readonly number[]): string => {
  const sorted = times.toSorted((a, b) => a - b);
  return [0.5, 0.95, 1].map((part) => `${(sorted[Math.ceil(sorted.length * part) - 1] ?? NaN).toFixed(0)}`).join('/');
};

/** Calls both neighbours, one call after another. @returns how long the calls of each took */
async function neighboursAnswer({ platform, endpoint, box }: Neighbours): Promise<string> {
  const times: { exec: number[]; call: number[] } = { exec: [], call: [] };
  for (let n = 0; n < CALLS; n += 1) {
    const from = performance.now();
    expect(await runIn(platform, box, `echo ${n}; exit 3`)).toMatchObject({ exitCode: 3, stdout: `${n}\n` });
    const between = performance.now();
    expect(jsonOf(await platform.invoke(endpoint, { n }))).toEqual({ n });
    times.exec.push(between - from);
    times.call.push(performance.now() - between);
  }
  return `exec ${shown(times.exec)}, call ${shown(times.call)} ms (p50/p95/most)`;
}

/** Number of times that the machine's link came up. */
const sessions = ({ agent }: Platform): number => agent.log().split('connected to the scheduler').length - 1;

interface Attack {
  readonly stub?: object;
  /** Begins it; absent: the entrypoint attacks. */
  readonly begin?: (platform: Platform, box: string) => Promise<number>;
  /** Whether it has come as far as it may. */
  readonly isThere: (platform: Platform, box: string, pid: number) => Promise<boolean>;
  /** Reason with which its limit ends it. */
  readonly ends?: string;
}

async function statsOf(platform: Platform, box: string) {
  const found = (await platform.containers()).find(({ Labels }) => Labels['io.longshore.container'] === box);
  if (found === undefined) throw new Error(`${box} is not in Docker`);
  return platform.engine.client.getContainer(found.Id).stats({ stream: false });
}

async function logSize(platform: Platform, box: string): Promise<number> {
  const lines = await platform.logs(`container_id=${box}`);
  return lines.length;
}

const attacks: Readonly<Record<string, Attack>> = {
  'forks without end': {
    stub: { memory: 1024 },
    begin: (platform, box) => startIn(platform, box, `exec python3 -c '${FORKS}'`),
    isThere: async (platform, box) => {
      const { pids_stats: pids = {} } = await statsOf(platform, box);
      return (pids.current ?? 0) >= 0.9 * (pids.limit ?? Infinity);
    },
  },
  'fills its disk': {
    begin: (platform, box) => startIn(platform, box, 'exec dd if=/dev/zero of=/var/tmp/full bs=1M'),
    isThere: async (platform, box) => !(await liveIds(platform)).includes(box),
    ends: 'disk_limit',
  },
  'prints without end, where nobody reads': {
    begin: (platform, box) => startIn(platform, box, 'head -c 2147483648 /dev/zero; echo over >&2; exec yes'),
    isThere: async (platform, box, pid) =>
      (await platform.gateway(`/pods/${box}/stderr?pid=${pid}`))['stderr'] === 'over\n',
  },
  'prints without end by its entrypoint': {
    stub: { entrypoint: ['yes', 'a line of a container that prints all the time'] },
    isThere: async (platform, box) => (await logSize(platform, box)) > 100,
  },
  'eats memory': {
    begin: (platform, box) => startIn(platform, box, `while :; do python3 -c '${EATS}'; done`),
    isThere: async (platform, box) => {
      const { memory_stats: memory } = await statsOf(platform, box);
      return memory.usage > 0.8 * memory.limit;
    },
  },
};

describe('a sandbox that', () => {
  test.for(Object.entries(attacks))(
    '%s hurts nobody else, and can be stopped',
    { timeout: 300_000 },
    async ([name, attack], { place }) => {
      const { platform } = place;
      const before = await neighboursAnswer(place);
      const pids = { scheduler: platform.scheduler.pid ?? 0, agent: platform.agent.pid ?? 0 };
      const rest = residentMib(pids);
      const links = sessions(platform);
      const box = await makeSandbox(
        platform,
        await sandboxStub(platform, { name: 'guilty', cpu: 500, ...attack.stub }),
      );
      let [during, pid] = ['', 0];
      const peak = await peakDuring(pids, async () => {
        pid = (await attack.begin?.(platform, box)) ?? 0;
        await waitFor(() => attack.isThere(platform, box, pid), 'the attack is at its height', 120_000);
        during = await neighboursAnswer(place);
      });
      const grown = (['scheduler', 'agent'] as const).map((daemon) => Math.round(peak[daemon] - rest[daemon]));
      said.push(`${name}: before ${before}; during ${during}; scheduler, agent: ${grown.join(', ')} MiB more`);
      if (attack.ends === undefined) expect(await stopSandbox(platform, box)).toBe(true);
      await nothingLeft(platform, [box]);
      if (attack.ends !== undefined) {
        const explained = await platform.call(`/api/v1/explain/${platform.workspaceId}/${box}`);
        expect(jsonOf<{ container: { reason: string } }>(explained).container.reason).toBe(attack.ends);
      }
      expect(Math.max(...grown), said.at(-1)).toBeLessThan(MOST_GROWN_MIB);
      expect([platform.scheduler.pid, platform.agent.pid]).toEqual([pids.scheduler, pids.agent]);
      expect([platform.scheduler.isRunning, platform.agent.isRunning]).toEqual([true, true]);
      expect(sessions(platform)).toBe(links);
      await neighboursAnswer(place);
    },
  );
});
