// The metrics pages of both daemons while they work: complete, right by Prometheus' own tools, and quickly answered.
import { randomUUID } from 'node:crypto';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { createLog } from '#shared/log.ts';
import { loadAgentConfig } from '#agent/config.ts';
import { createAgent } from '#agent/main.ts';
import { ALERTS, alertRules, dashboardQueries, filledIn } from '../helpers/monitoring.ts';
import { FakeNvidia, aGpu } from '../helpers/gpus.ts';
import { ROOT, baseImageOf, test } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import type { Program } from '../helpers/programs.ts';
import { findProgram, freePort, missingService, startProgram, tempDirectory, waitFor } from '../helpers/services.ts';

/**
 * Adds another machine to the installation, with two GPUs by the stand-in of NVIDIA's tool. The machine takes no work
 * without a GPU, because it is kept for GPU work.
 */
async function withGpuMachine<T>(platform: Platform, work: (machineId: string) => Promise<T>): Promise<T> {
  const directory = tempDirectory('gpus');
  const nvidia = new FakeNvidia(directory.path, { gpus: [aGpu(0), aGpu(1)] });
  const created = await platform.gateway<{ agentUpstreamToken: string; machine: { id: string } }>('/machines', {
    poolName: 'gpu',
  });
  const config = loadAgentConfig({
    LONGSHORE_DATA_DIR: directory.path,
    LONGSHORE_SCHEDULER_ADDRESS: platform.agentAddress,
    LONGSHORE_JOIN_TOKEN: created.agentUpstreamToken,
    LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
    LONGSHORE_AGENT_NETWORK: `${platform.network}-gpus`,
    LONGSHORE_AGENT_HOLDERS: '0',
    LONGSHORE_BASE_IMAGE: baseImageOf(platform.engine),
    LONGSHORE_NVIDIA_SMI: nvidia.tool,
  });
  const agent = createAgent(config, createLog({ name: 'agent', level: 'silent' }));
  await agent.start();
  try {
    await agent.connected;
    return await work(created.machine.id);
  } finally {
    await agent.stop('stop');
    directory.remove();
  }
}

const namesIn = (page: string): string[] => [...page.matchAll(/^# TYPE (\S+)/gm)].map((match) => match[1] ?? '').sort();

const agentAddress = (platform: Platform): string =>
  /"metricsAddress":"([^"]+)"/.exec(platform.agent.log())?.[1] ?? 'unknown';

async function page(address: string): Promise<string> {
  const answer = await fetch(`http://${address}/metrics`, { signal: AbortSignal.timeout(5000) });
  expect(answer.status).toBe(200);
  return await answer.text();
}

function needed(name: string): string {
  const program = findProgram(name);
  if (program === undefined) throw missingService(name);
  return program;
}

/** Complaints of promtool about a page; empty when there are none. */
async function complaints(text: string): Promise<string> {
  const child = spawn(needed('promtool'), ['check', 'metrics'], { stdio: ['pipe', 'pipe', 'pipe'], timeout: 30_000 });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (part: string) => (said += part));
  child.stdin.end(text);
  const [code] = (await once(child, 'close')) as [number | null];
  return code === 0 ? said : `${said}(exit ${code})`;
}

/** Prometheus cannot ask the kernel for a port: where another program was quicker, the next port is tried. */
async function startPrometheus(config: string, data: string): Promise<{ address: string; prometheus: Program }> {
  for (let tries = 1; ; tries += 1) {
    const address = `127.0.0.1:${await freePort()}`;
    const args = [`--config.file=${config}`, `--storage.tsdb.path=${data}`, `--web.listen-address=${address}`];
    const prometheus = await startProgram(needed('prometheus'), args);
    const isReady = async (): Promise<boolean | 'ended'> => {
      if (!prometheus.isRunning()) return 'ended';
      const answer = await fetch(`http://${address}/-/ready`, { signal: AbortSignal.timeout(5000) }).catch(() => null);
      return answer?.status === 200;
    };
    if ((await waitFor(isReady, 'Prometheus is ready', 30_000)) !== 'ended') return { address, prometheus };
    if (tries === 3) throw new Error(`Prometheus does not start:\n${prometheus.output()}`);
  }
}

/** Calls one after another, several at a time, until the work is done. */
async function underLoad<T>(platform: Platform, app: Deployment, work: () => Promise<T>): Promise<T> {
  let isOver = false;
  const callers = Array.from({ length: 8 }, async () => {
    while (!isOver) expect((await platform.invoke(app, { key: 'k', seconds: 0 })).status).toBe(200);
  });
  try {
    return await work();
  } finally {
    isOver = true;
    await Promise.all(callers);
  }
}

test('every metric of both daemons is in docs/metrics.md, and nothing else is', async ({ platform }) => {
  const docs = readFileSync(join(ROOT, 'docs', 'metrics.md'), 'utf8');
  const documented = [...docs.matchAll(/^\| `((?:longshore|process|nodejs)_\S+)` +\|/gm)].map(([, name = '']) => name);
  // The process is each daemon's own.
  const ofBoth = documented.filter((name) => !name.startsWith('longshore_'));
  const pages = await Promise.all([platform.httpAddress, agentAddress(platform)].map(page));
  expect(pages.flatMap(namesIn).sort()).toEqual([...documented, ...ofBoth].sort());
});

test('under load promtool has nothing against either page, and both are there within 250 ms', async ({ platform }) => {
  const app = await platform.deploy({ app: 'counted.py', handler: 'handler', workers: 4 });
  expect((await platform.invoke(app, { key: 'first', seconds: 0 })).status).toBe(200);
  await underLoad(platform, app, async () => {
    for (const address of [platform.httpAddress, agentAddress(platform)]) {
      const tookMs: number[] = [];
      let text = '';
      for (let scrape = 0; scrape < 10; scrape += 1) {
        const startedMs = performance.now();
        text = await page(address);
        tookMs.push(performance.now() - startedMs);
      }
      expect(await complaints(text)).toBe('');
      // The best time counts, because the machine is busy with the load, and perhaps with more.
      expect(Math.min(...tookMs)).toBeLessThan(250);
    }
  });
  const scheduler = await page(platform.httpAddress);
  expect(scheduler).toMatch(/longshore_task_finished_total\{stub_type="endpoint",status="COMPLETE"\} [1-9]/);
  expect(scheduler).toMatch(/longshore_scheduler_redis_command_duration_seconds_count\{class="control"\} [1-9]/);
  expect(scheduler).toContain('longshore_scheduler_machines{pool="default",health="READY",intent="active"} 1');
  expect(scheduler).toContain('longshore_scheduler_leader{shard="0"} 1');
  expect(scheduler).toMatch(/longshore_scheduler_pool_cpu_cores\{pool="default",state="allocated"\} 0\.25/);
});

test('promtool would say what is wrong', async () => {
  expect(await complaints('# TYPE longshore_things counter\nlongshore_things 1\n')).toContain('_total');
});

/** A query without its stand-in for "it never happened": its own data. */
const own = (expr: string): string => expr.replace(/ or vector\(0\)$/, '');

/** Series that a small load does not touch, so that only the stand-in shows: failures, and work that waits. */
const NEVER_HERE = [
  /longshore_task_(?:retries|attempts_lost|transitions_refused|late_results)_total/,
  /longshore_scheduler_(?:quota_throttles|machine_disconnects|gpu_lease_faults|stale_writes_refused)_total/,
  /longshore_scheduler_(?:backlog|unschedulable)_requests|longshore_scheduler_drains_active/,
  /longshore_autoscaler_(?:deployment_queue_depth|degraded_deployments)|longshore_task_(?:in_state|oldest_pending_seconds)/,
  /longshore_agent_(?:image_pulls|container_exits|log_records|gpu_probe_failures|gpu_lease_refusals|gpu_xid_errors|gpu_faults)_total/,
  /longshore_scheduler_(?:schedule_tick|rate_limited|deliver|container_calls|streams_ended|stream_bytes|objects_collected|retention_|log_lines_dropped)|longshore_agent_gateway_calls/,
  // No receiver of webhooks is here, and no provider of machines.
  /longshore_scheduler_(?:webhook|provision)/,
  /health=~"SUSPECT\|LOST"/,
];

/**
 * Nothing here has a GPU, a receiver of webhooks or a model that streams, and NVIDIA's exporter does not run: such
 * queries need only be readable.
 */
const ONLY_READABLE =
  /longshore_agent_gpu_lease_info|longshore_agent_gpu_leased\{[^}]*\} == 1|longshore_scheduler_(?:webhook_duration|inference_first_token)/;
/** Dashboard variables that select all pools, machines and models. */
const EVERYTHING = { pool: '.*', instance: '.*', model: '.*', __rate_interval: '1m' };

test('a real Prometheus finds the fleet by itself, scrapes it, evaluates every rule, and has data for every panel of the dashboard', async ({
  platform,
}) => {
  const directory = tempDirectory('prom');
  const config = join(directory.path, 'prometheus.yml');
  const discovery = `http://${platform.httpAddress}/api/v1/discovery/prometheus`;
  writeFileSync(
    config,
    `global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: ['${ALERTS}']
scrape_configs:
  - job_name: longshore
    http_sd_configs: [{ url: '${discovery}', refresh_interval: 1s }]
`,
  );
  const { volume } = (await platform.gateway('/volumes', { name: 'data' })) as { volume: { id: string } };
  const volumes = [{ id: volume.id, mountPath: 'data' }];
  const app = await platform.deploy({ app: 'counted.py', handler: 'handler', workers: 4, volumes });
  const { address, prometheus } = await startPrometheus(config, join(directory.path, 'data'));
  try {
    const ask = async (path: string): Promise<unknown> => {
      const answer = await fetch(`http://${address}/api/v1/${path}`, { signal: AbortSignal.timeout(10_000) });
      return await answer.json();
    };
    interface Series {
      readonly data: {
        readonly result: readonly { readonly metric: { readonly job: string }; value: [number, string] }[];
      };
    }
    const up = await waitFor(
      async () => {
        const { data } = (await ask('query?query=up')) as Series;
        return data.result.filter(({ value }) => value[1] === '1').length === 2 && data.result;
      },
      'both daemons are up',
      30_000,
    );
    expect(up.map(({ metric }) => metric.job).sort()).toEqual(['longshore-agent', 'longshore-scheduler']);

    interface Rules {
      readonly data: { readonly groups: readonly { readonly rules: readonly { name: string; health: string }[] }[] };
    }
    const rules = await waitFor(
      async () => {
        const { data } = (await ask('rules')) as Rules;
        const all = data.groups.flatMap((group) => group.rules);
        return all.length > 0 && all.every(({ health }) => health !== 'unknown') && all;
      },
      'every rule was evaluated',
      30_000,
    );
    expect(rules.filter(({ health }) => health !== 'ok')).toEqual([]);
    expect(rules).toHaveLength(alertRules().length);

    const hasData = async (expr: string): Promise<boolean> => {
      const answer = (await ask(`query?query=${encodeURIComponent(filledIn(expr, EVERYTHING))}`)) as Series & {
        readonly status: string;
      };
      expect(answer.status, expr).toBe('success');
      return answer.data.result.some(({ value }) => value[1] !== 'NaN');
    };
    // Data are there for a while only, such as those of a start: a panel that had some once is not asked again.
    const filled = new Set<string>();
    const emptyPanels = async (): Promise<string[]> => {
      const empty: string[] = [];
      for (const { panel, expr } of dashboardQueries()) {
        if (filled.has(expr)) continue;
        const mayBeEmpty = NEVER_HERE.some((pattern) => pattern.test(expr));
        const has = await hasData(mayBeEmpty ? expr : own(expr));
        if (has) filled.add(expr);
        else if (!ONLY_READABLE.test(expr)) empty.push(`${panel}: ${expr}`);
      }
      return empty;
    };
    let empty: string[] = [];
    await withGpuMachine(platform, (machineId) =>
      underLoad(platform, app, async () => {
        let looks = 0;
        const look = async (): Promise<boolean> => {
          // A start each time: the first one may be over before Prometheus reads the pages.
          looks += 1;
          const begun = await platform.deploy({
            app: 'counted.py',
            handler: 'handler',
            name: `begun-${looks}`,
            volumes,
          });
          expect((await platform.invoke(begun, { key: 'begun', seconds: 0 })).status).toBe(200);
          // The drain ends again and again, because a rate shows only from the second on.
          await platform.gateway(`/workers/${machineId}/drain`, {});
          // A list, which is a read of a tenant.
          await platform.gateway('/tasks?limit=1');
          // Another definition each time, and its build.
          const definition = { commands: [`: ${randomUUID()}`] };
          await platform.gateway('/images/verify-build', definition);
          await platform.call('/api/v1/gateway/images/build', { body: definition });
          empty = await emptyPanels();
          await platform.gateway(`/workers/${machineId}/uncordon`, {});
          return empty.length === 0;
        };
        await waitFor(look, 'every panel has data', 100_000).catch((error: unknown) => {
          throw new Error(`without data:\n${empty.join('\n')}`, { cause: error });
        });
      }),
    );
  } finally {
    await prometheus.end();
    directory.remove();
  }
});
