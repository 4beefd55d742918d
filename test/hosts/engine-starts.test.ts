// An engine that starts no container: a runc that fails, until it is repaired.
// The fault is the machine's, never that of the containers to start.
import { spawn } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { findProgram, tempDirectory } from '../helpers/programs.ts';
import { testOnHosts, whyNoHosts } from '../helpers/hosts.ts';
import type { SimulatedHost } from '../helpers/hosts.ts';
import { ROOT } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

const WORDS = 'no such namespace: this runc does not fit its dockerd';
/** Fails at what makes a container, as a runc that is too old does, while the file `broken` lies beside it. */
const RUNC = `#!/bin/sh
if [ -e "$(dirname "$0")/broken" ]; then
  for word in "$@"; do [ "$word" = create ] && { echo '{"level":"error","msg":"${WORDS}"}' > /proc/self/fd/2
    while [ $# -gt 0 ]; do [ "$1" = --log ] && echo '{"level":"error","msg":"${WORDS}"}' >> "$2"; shift; done; exit 1; }; done
fi
exec ${findProgram('runc') ?? 'runc'} "$@"
`;

const test = testOnHosts({
  count: 2,
  host: () => ({ programs: { runc: RUNC } }),
  agentSettings: () => ({ LONGSHORE_AGENT_CPU: '1', LONGSHORE_AGENT_MEMORY: '2048' }),
});
const flag = (host: SimulatedHost): string => join(host.directory, 'bin', 'broken');

describe.skipIf(whyNoHosts !== undefined)('an engine that starts nothing', () => {
  test('its machine takes nothing new and says why; what was to start there starts elsewhere or waits, and fails at nothing', async ({
    fleet,
  }) => {
    const [broken, well] = fleet.members;
    if (broken === undefined || well === undefined) throw new Error('two hosts are needed');
    writeFileSync(flag(broken.host), '');
    try {
      const queue = await fleet.deploy({
        app: 'counted.py',
        handler: 'handler',
        name: 'starts',
        stubType: 'taskqueue/deployment',
        cpu: 600,
        timeout: 300,
        autoscaler: { type: 'queue_depth', maxContainers: 2, tasksPerContainer: 1 },
      });
      const ids = await Promise.all([0, 1].map((at) => fleet.put(queue, { key: `s-${at}`, seconds: 0, held: true })));
      await waitFor(() => broken.host.hasCondition('EngineCannotStart'), 'the machine says so', 30_000);
      const { machines } = await fleet.gateway<{ machines: readonly { id: string; conditionWords: object }[] }>(
        '/machines',
      );
      const words = machines.find(({ id }) => id === broken.machineId())?.conditionWords;
      expect(words).toEqual({ EngineCannotStart: expect.stringContaining(WORDS) as string });
      // The first container has a place. The second waits for one, and says why in the words of the engine.
      const waiting = await waitFor(
        async () =>
          (await fleet.containerViews()).find(({ status, machineId }) => status === 'PENDING' && machineId === ''),
        'the second has no place',
        30_000,
      );
      const told = await waitFor(
        async () => {
          const { details } = await fleet.explain(waiting.containerId);
          return details.find((text) => text.includes('EngineCannotStart on 1 machine'));
        },
        'explain names the condition',
        15_000,
      );
      expect(told).toContain(WORDS);
      expect((await fleet.explain(queue.deploymentId)).details.join('\n')).toContain(WORDS);
      const views = await fleet.containerViews();
      expect(views.filter(({ status }) => status === 'FAILED')).toEqual([]);
      expect(await broken.host.containers(['io.longshore.container'])).toEqual([]);
      const trials = await broken.host.run('curl', '-sf', 'http://127.0.0.1:9464/metrics');
      // The loop of starts is over; only trials go on, with back-off.
      expect(
        Number(/longshore_agent_container_exits_total\{reason="engine_cannot_start"\} (\d+)/.exec(trials)?.[1] ?? 0),
      ).toBeLessThan(5);
      rmSync(flag(broken.host));
      await waitFor(async () => !(await broken.host.hasCondition('EngineCannotStart')), 'it is over', 90_000);
      for (const id of ids) await fleet.taskIs(id, 'RUNNING', 60_000);
    } finally {
      rmSync(flag(broken.host), { force: true });
    }
  });

  test('a first run ends with the words of the engine instead of waiting', async ({ fleet }) => {
    const host = fleet.members[0]?.host;
    if (host === undefined) throw new Error('a host is needed');
    const home = tempDirectory('first-run');
    writeFileSync(flag(host), '');
    try {
      mkdirSync(join(home.path, 'data'));
      const { code, said } = await firstRun(host, home.path);
      expect(said).toContain('starts no container');
      expect(said).toContain(WORDS);
      expect(code).toBe(1);
      expect(said.split('\n').length).toBeLessThan(60);
    } finally {
      rmSync(flag(host), { force: true });
      home.remove();
    }
  });
});

async function firstRun(
  host: SimulatedHost,
  home: string,
): Promise<{ readonly code: number | null; readonly said: string }> {
  const args = [
    join(ROOT, 'cli', 'main.ts'),
    'up',
    '--first-run',
    '--example',
    join(ROOT, 'examples', 'hello', 'app.py:handler'),
  ];
  const child = spawn(process.execPath, args, {
    env: {
      PATH: process.env['PATH'],
      HOME: home,
      DOCKER_HOST: `unix://${host.socket}`,
      LONGSHORE_DATA_DIR: join(home, 'data'),
      LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
      LONGSHORE_AGENT_NETWORK: 'longshore-first-run',
      LONGSHORE_BASE_IMAGE: 'longshore-python:{version}',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (said += text));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { code, said };
}
