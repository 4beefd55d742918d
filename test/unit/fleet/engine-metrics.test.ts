import { describe, expect, test, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { Engines } from '#scheduler/fleet/engines/engines.ts';
import { bodyOfAnswer, engineMetricsOf } from '#scheduler/fleet/engines/metrics-text.ts';
import type { TaskLink } from '#scheduler/tasks/dispatch/slots.ts';
import { SlotTable } from '#scheduler/tasks/dispatch/slots.ts';

const VLLM = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/name"} 3.0
vllm:num_requests_running{engine="1",model_name="org/name"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="a } b"} 4.0 1763000000000
vllm:num_requests_waiting{engine="1",model_name="org/name"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="org/name"} 0.75
vllm:kv_cache_usage_perc{engine="1",model_name="org/name"} 0.5
vllm:num_requests_waiting_by_reason{reason="capacity"} 99
vllm:time_to_first_token_seconds_bucket{le="0.001"} 7
process_cpu_seconds_total 12
`;
const SGLANG = `# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 8.0
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 8.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 5.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 5.0
sglang:token_usage{model_name="m",tp_rank="0"} 0.28
`;

describe('metrics of engines', () => {
  test('those of vLLM: engines of a server are added, the fullest cache counts', () => {
    expect(engineMetricsOf(VLLM)).toEqual({ running: 5, waiting: 4, cacheUse: 0.75 });
    const older = 'vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:gpu_cache_usage_perc 0.1\r\n';
    expect(engineMetricsOf(older)).toEqual({ running: 1, waiting: 0, cacheUse: 0.1 });
  });

  test('those of SGLang: ranks of a model tell the same requests', () => {
    expect(engineMetricsOf(SGLANG)).toEqual({ running: 8, waiting: 5, cacheUse: 0.28 });
  });

  test('a page that does not tell both is none; odd values are skipped', () => {
    expect(engineMetricsOf('')).toBeUndefined();
    expect(engineMetricsOf('vllm:num_requests_running 1\n')).toBeUndefined();
    const odd = 'vllm:num_requests_running NaN\nvllm:num_requests_running 2\nvllm:num_requests_waiting -1\n';
    expect(engineMetricsOf(odd)).toBeUndefined();
    expect(engineMetricsOf(`${odd}vllm:num_requests_waiting +Inf\nvllm:num_requests_waiting 1e0`)).toMatchObject({
      running: 2,
      waiting: 1,
      cacheUse: undefined,
    });
  });

  test('an answer counts when it is 200 and whole', () => {
    const answer = (head: string): string | undefined => bodyOfAnswer(Buffer.from(`${head}\r\n\r\nbody`));
    expect(answer('HTTP/1.1 200 OK\r\nContent-Type: text/plain')).toBe('body');
    expect(answer('HTTP/1.1 404 Not Found')).toBeUndefined();
    expect(answer('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked')).toBeUndefined();
    expect(bodyOfAnswer(Buffer.from('HTTP/1.1 200 OK\r\n'))).toBeUndefined();
  });
});

describe('reading engines', () => {
  const page = (running: number, waiting: number): string =>
    `HTTP/1.0 200 OK\r\n\r\nvllm:num_requests_running ${running}\nvllm:num_requests_waiting ${waiting}\n`;

  function aWorld(answer: () => Promise<Buffer>, engine: { port: number; path: string } | undefined) {
    const slots = new SlotTable();
    const facts = {
      containerId: 'c-1' as ContainerId,
      queue: 'tq-a' as QueueName,
      machineId: 'm-1' as MachineId,
      slots: 8,
    };
    const container = slots.ready(facts, {} as TaskLink, 0);
    const asked: string[] = [];
    const stuck: QueueName[] = [];
    const engines = new Engines({
      slots,
      containers: { get: () => ({ row: { workspaceId: 'w' as WorkspaceId }, spec: { engine } }) as never },
      inside: {
        exchange: (_container, port, bytes) => {
          asked.push(`${port} ${Buffer.from(bytes).toString('latin1').split('\r\n', 1)[0]}`);
          return answer();
        },
      },
      log: createLog({ name: 'test', level: 'silent' }),
    });
    engines.onStuck((queue) => stuck.push(queue));
    const round = async (): Promise<void> => {
      engines.round();
      await new Promise((resolve) => setImmediate(resolve));
    };
    return { slots, container, asked, stuck, engines, round };
  }

  test('an engine with calls is asked; what waits twice in a row is told', async () => {
    let waiting = 3;
    const world = aWorld(() => Promise.resolve(Buffer.from(page(8, waiting))), { port: 8000, path: '/metrics' });
    await world.round();
    expect(world.asked).toEqual([]);
    world.container.inFlight = 2;
    await world.round();
    expect(world.asked).toEqual(['8000 GET /metrics HTTP/1.0']);
    expect(world.container).toMatchObject({ engineWaiting: 3, engine: { running: 8, waiting: 0 } });
    expect(world.stuck).toEqual([]);
    waiting = 2;
    await world.round();
    expect(world.container).toMatchObject({ engineWaiting: 2, engine: { running: 8, waiting: 2 } });
    expect(world.stuck).toEqual(['tq-a']);
    waiting = 0;
    await world.round();
    expect(world.container).toMatchObject({ engineWaiting: 0, engine: { running: 8, waiting: 0 } });
  });

  test('figures that are not read again within 5 s no longer count', async () => {
    let fails = false;
    const answer = (): Promise<Buffer> =>
      fails ? Promise.reject(new Error('refused')) : Promise.resolve(Buffer.from(page(1, 1)));
    const world = aWorld(answer, { port: 8000, path: '/metrics' });
    world.container.inFlight = 1;
    await world.round();
    fails = true;
    await world.round();
    expect(world.container.engineWaiting).toBe(1);
    const now = performance.now();
    const clock = vi.spyOn(performance, 'now').mockReturnValue(now + 5_001);
    await world.round();
    clock.mockRestore();
    expect(world.container.engineWaiting).toBe(0);
    expect(world.container.engine).toBeUndefined();
  });

  test('an engine is asked again only when its last answer has come; other containers never', async () => {
    const waits = Promise.withResolvers<Buffer>();
    const world = aWorld(() => waits.promise, { port: 8000, path: '/metrics' });
    world.container.inFlight = 1;
    await world.round();
    await world.round();
    expect(world.asked).toHaveLength(1);
    // The container left meanwhile: its answer changes nothing.
    world.slots.remove(world.container.containerId);
    waits.resolve(Buffer.from(page(1, 1)));
    await world.round();
    expect(world.container.engine).toBeUndefined();
    const other = aWorld(() => Promise.resolve(Buffer.from(page(1, 1))), undefined);
    other.container.inFlight = 1;
    await other.round();
    expect(other.asked).toEqual([]);
  });
});
