// The names, labels and buckets of the scheduler's metrics are a promise to dashboards and alert rules. This test
// compares them, word by word, with the metrics that the parts register.
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Redis } from 'ioredis';
import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import { FAST_BUCKETS, Registry, SLOW_BUCKETS } from '#shared/metrics.ts';
import type { GpuFacts } from '#agent/telemetry/metrics.ts';
import { COUNTED_FROM_ZERO } from '#agent/devices/xid.ts';
import { AgentMetrics } from '#agent/telemetry/metrics.ts';
import { AutoscalerMetrics } from '#scheduler/control/autoscaler/metrics.ts';
import { ProvisioningMetrics, registerProvisionGauges } from '#scheduler/control/provisioning/metrics.ts';
import { ReadMetrics } from '#scheduler/stores/store/metrics.ts';
import { registerGauges } from '#scheduler/compose/gauges.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { IdentityMetrics } from '#scheduler/workspaces/identity/metrics.ts';
import { ObjectMetrics } from '#scheduler/stores/objects/collector.ts';
import { LoopMetrics } from '#scheduler/cluster/loop-metrics.ts';
import { LogMetrics } from '#scheduler/fleet/logs/metrics.ts';
import { RedisMemory } from '#scheduler/stores/queues/redis-memory.ts';
import { RetentionMetrics } from '#scheduler/tasks/retention/metrics.ts';
import { ScheduleMetrics } from '#scheduler/tasks/schedules/metrics.ts';
import { registerFlowGauges } from '#scheduler/tasks/maintenance/flow-gauges.ts';
import { registerTaskGauges, TaskMetrics } from '#scheduler/tasks/metrics.ts';
import { EventWebhookMetrics } from '#scheduler/tasks/event-webhooks/metrics.ts';
import { InferenceMetrics } from '#scheduler/api/http/inference/metrics.ts';
import { DeferredCallMetrics } from '#scheduler/tasks/deferred-calls/metrics.ts';
import { DeliveryMetrics } from '#scheduler/tasks/webhooks/metrics.ts';
import { anIdleInstallation } from '../../helpers/idle-installation.ts';
import { alertRules, documentedMetrics } from '../../helpers/monitoring.ts';

const docs = readFileSync(join(resolve(import.meta.dirname, '..', '..', '..'), 'docs', 'metrics.md'), 'utf8');

/** A metric as the registry keeps it; the published types leave the labels out. */
interface Registered {
  readonly name: string;
  readonly labelNames: readonly string[];
  readonly upperBounds?: readonly number[];
}

const described = ({ name, labelNames, upperBounds }: Registered): string =>
  `${name}{${labelNames.join()}}${upperBounds === undefined ? '' : ` ${bucketsNamed(upperBounds)}`}`;

function bucketsNamed(bounds: readonly number[]): string {
  if (bounds.join() === FAST_BUCKETS.join()) return 'fast';
  return bounds.join() === SLOW_BUCKETS.join() ? 'slow' : bounds.join();
}

const registered = (registry: Registry): readonly Registered[] =>
  registry.getMetricsAsArray().map((metric) => metric as unknown as Registered);

const NONE = { size: 0 };

/**
 * Everything that the scheduler registers, but the records' own four (test/hosts/metrics.test.ts covers those).
 */
function schedulerRegistry(): Registry {
  const registry = new Registry();
  new TaskMetrics(registry);
  registerTaskGauges(registry, { replies: NONE, queueing: NONE, attempts: NONE });
  registerFlowGauges(registry, { held: new Map() }, () => true);
  new DeliveryMetrics(registry);
  new EventWebhookMetrics(registry);
  new InferenceMetrics(registry);
  new DeferredCallMetrics(registry);
  new ObjectMetrics(registry);
  new RetentionMetrics(registry);
  new LogMetrics(registry);
  new RedisMemory({ redis: new Redis({ lazyConnect: true }), registry, log: pino({ level: 'silent' }) });
  new AutoscalerMetrics(registry);
  new LoopMetrics(registry, systemClock);
  new IdentityMetrics(registry);
  new ScheduleMetrics(registry);
  new ReadMetrics(registry, {
    of: () => ({ query: () => Promise.reject(new Error()) }),
    waiting: 0,
    onRead: undefined,
  });
  const fleetMetrics = new FleetMetrics(registry);
  fleetMetrics.showPool('gpu');
  registerGauges({ ...anIdleInstallation(), registry, fleetMetrics });
  new ProvisioningMetrics(registry, fleetMetrics);
  registerProvisionGauges({ registry, metrics: fleetMetrics, views: () => [], isLeader: () => true });
  return registry;
}

const SCHEDULER = `
  backlog_requests{pool,gpu_model,state}
  placements_total{pool,gpu_model,result}
  placement_duration_seconds{gpu_model} fast
  placement_wait_seconds{gpu_model,result} slow
  unschedulable_requests{reason}
  gpu_lease_faults_total{kind}
  mass_disconnect_guard_active{pool}
  stale_writes_refused_total{kind}
  loop_duration_seconds{loop} fast
  loop_last_success_timestamp_seconds{loop}
  leader{shard}
  machines{pool,health,intent}
  pool_gpus{pool,gpu_model,state}
  pool_cpu_cores{pool,state}
  pool_memory_bytes{pool,state}
  provision_decisions_total{pool,step,reason}
  provision_machines{pool,state}
  provision_hourly_cost{pool}
  provision_waiting_containers{pool,state}
  provision_blocked_pools{reason}
  drains_active{pool}
  drain_duration_seconds{pool,result} slow
  machine_disconnects_total{pool,reason}
  mass_disconnect_guard_active{pool}
  agent_sessions{protocol}
  agent_messages_total{type,result}
  container_calls_total{result}
  join_attempts_total{result}
  quota_throttles_total{resource}
  deliveries_total{kind,result}
  objects_collected_total{kind}
  log_lines_dropped_total{}
  redis_memory_bytes{kind}
  retention_deleted_total{kind}
  retention_overdue_seconds{kind}
  retention_batch_duration_seconds{kind} fast
  deliveries_waiting{}
  delivery_tries_total{kind,outcome}
  delivery_duration_seconds{kind} slow
  webhook_tries_total{outcome}
  webhook_events_total{result}
  webhook_duration_seconds{} slow
  webhook_skipped_events_total{}
  webhooks_deactivated_total{}
  webhooks_behind{}
  inference_requests_total{type,status}
  inference_first_token_seconds{type} slow
  inference_tokens_total{direction}
  rate_limited_total{limit}
  tenant_reads_total{outcome}
  tenant_read_seconds{} fast
  tenant_reads_waiting{}
  redis_up{}
  redis_command_duration_seconds{class} fast`;
const AUTOSCALER = `
  desired_containers{stub_type}
  live_containers{stub_type,state}
  scale_events_total{direction,reason}
  samples_total{result}
  degraded_deployments{}
  deployment_queue_depth{deployment_id}`;
const TASK = `
  in_state{stub_type,state}
  finished_total{stub_type,status}
  queue_wait_seconds{stub_type} slow
  execution_seconds{stub_type,status} slow
  retries_total{stub_type,cause}
  attempts_lost_total{reason}
  oldest_pending_seconds{stub_type}
  dead{stub_type}
  flow_held{control}
  dispatch_duration_seconds{} fast`;

const lines = (prefix: string, text: string): string[] =>
  text
    .trim()
    .split('\n')
    .map((line) => `longshore_${prefix}_${line.trim()}`);

describe('the metrics that dashboards and alert rules rely on', () => {
  test('have these names, labels and buckets', () => {
    const found = registered(schedulerRegistry()).map(described);
    expect(found).toEqual(
      expect.arrayContaining([
        ...lines('scheduler', SCHEDULER),
        ...lines('autoscaler', AUTOSCALER),
        ...lines('task', TASK),
      ]),
    );
  });

  test('carry no ids in labels, but for the three that are bounded', () => {
    const labels = [schedulerRegistry(), new AgentMetrics().registry].flatMap((registry) =>
      registered(registry).flatMap((metric) => metric.labelNames),
    );
    const ids = labels.filter((label) => /_id$|uuid|task|container|workspace|machine/.test(label));
    expect(ids.filter((label) => !['deployment_id', 'workspace'].includes(label) && label !== 'gpu_uuid')).toEqual([]);
  });

  test('stand in docs/metrics.md with their labels', () => {
    const rows = [...docs.matchAll(/^\| `(longshore_\w+)` \| \w+ \| (.*?) \|/gm)].map(
      ([, name, labels]) => `${name}{${(labels ?? '').replaceAll(/[` ]/g, '')}}`,
    );
    const found = [schedulerRegistry(), new AgentMetrics().registry].flatMap((registry) =>
      registered(registry).map(({ name, labelNames }) => `${name}{${labelNames.join()}}`),
    );
    expect(rows).toEqual(expect.arrayContaining(found));
  });

  test('stand in docs/metrics.md once', () => {
    const names = [...docs.matchAll(/^\| `(longshore_\w+)` \|/gm)].map(([, name = '']) => name);
    expect(names.length).toBeGreaterThan(100);
    expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
  });
});

const A_GPU: GpuFacts = {
  uuid: 'MIG-7',
  model: 'H100-MIG-3g.40gb',
  healthy: true,
  state: 'healthy',
  missing: false,
  leased: true,
  deploymentId: 'd-1',
  wholeUuid: 'GPU-1',
  instance: '7',
  memoryBytes: 0,
  sample: undefined,
};

test('a GPU that a container has names its deployment, its whole device and its instance, as long as it has it', async () => {
  const metrics = new AgentMetrics();
  metrics.setGpus([A_GPU]);
  expect(await metrics.registry.metrics()).toContain(
    'longshore_agent_gpu_lease_info{gpu_uuid="MIG-7",gpu_device="GPU-1",gpu_instance="7",deployment_id="d-1"} 1',
  );
  metrics.setGpus([{ ...A_GPU, leased: false, deploymentId: '' }]);
  expect(await metrics.registry.metrics()).not.toContain('longshore_agent_gpu_lease_info{');
});

/** Words that a label selector of an alert names one by one: `=~"ERROR|TIMEOUT"`. */
const namedIn = (selector: string): readonly string[] =>
  [...selector.matchAll(/(\w+)=~?"([\w|]+)"/g)].flatMap(([, label = '', words = '']) =>
    words.split('|').map((word) => `${label}="${word}"`),
  );

test('counters whose increase an alert watches are at 0 before anything is counted, so that the first event is seen', async () => {
  const agent = new AgentMetrics();
  agent.xidsFromZero = COUNTED_FROM_ZERO;
  agent.setGpus([A_GPU]);
  const page = (await Promise.all([schedulerRegistry().metrics(), agent.registry.metrics()])).join('\n');
  const labels = documentedMetrics();
  const watched = alertRules().flatMap(({ alert, expr }) =>
    [...expr.matchAll(/\b(?:increase|rate)\((longshore_\w+_total)(?:\{([^}]*)\})?\[/g)].map(
      ([, name = '', selector = '']) => ({ alert, name, selector }),
    ),
  );
  expect(watched.length).toBeGreaterThan(10);
  for (const { alert, name, selector } of watched) {
    // A metric without labels begins at 0 by itself.
    if ((labels.get(name) ?? []).length === 0) continue;
    const series = page.split('\n').filter((line) => line.startsWith(`${name}{`));
    expect(series, `${alert}: ${name}`).not.toEqual([]);
    for (const word of namedIn(selector))
      expect(
        series.some((line) => line.includes(word) && line.endsWith(' 0')),
        `${alert}: ${name} ${word}`,
      ).toBe(true);
  }
});

test('states that no container has are shown as 0', async () => {
  const metrics = new AgentMetrics();
  metrics.setContainers(new Map([['running', 2]]));
  metrics.setContainers(new Map([['starting', 1]]));
  const page = await metrics.registry.metrics();
  expect(page).toContain('longshore_agent_containers{state="running"} 0');
  expect(page).toContain('longshore_agent_containers{state="starting"} 1');
  expect(page).toContain('longshore_agent_containers{state="stopping"} 0');
});
