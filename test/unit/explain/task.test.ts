import { describe, expect, test } from 'vitest';
import { Value } from 'typebox/value';
import { Explanation } from '#shared/api/explain.ts';
import type { ContainerId, QueueName } from '#shared/domain/ids.ts';
import { TASK_STATUSES } from '#shared/domain/status.ts';
import type { TaskFacts } from '#scheduler/api/explain/task.ts';
import { explainTask } from '#scheduler/api/explain/task.ts';
import { NO_POOL, lackOf } from '#scheduler/domain/named-pool.ts';
import { placementWait } from '#scheduler/control/placement/waiting.ts';
import type { ContainerRow } from '#scheduler/stores/store/queries/containers.ts';
import { NOW, aContainer, at, scalingOf } from './facts.ts';

describe('a task', () => {
  const record = {
    taskId: 't',
    workspaceId: 'w',
    stubId: 's',
    deploymentId: 'd',
    queue: 'tq-d' as QueueName,
    kind: 'taskqueue',
    sync: false,
    status: 'PENDING',
    attempt: 0,
    rank: 0,
    containerId: null,
    failureReason: '',
    createdAtMs: NOW - 1000,
    startedAtMs: null,
    endedAtMs: null,
    durationMs: null,
    deadlineMs: NOW + 7200_000,
  } as unknown as TaskFacts['record'];
  /** A task whose only attempt ended. */
  const ran = { attempt: 1, containerId: 'c' as ContainerId, startedAtMs: NOW - 500 } as const;
  const explained = (changes: Partial<TaskFacts>, said: Partial<TaskFacts['record']> = {}): Explanation => {
    const found = explainTask({
      record: { ...record, ...said },
      job: undefined,
      place: { kind: 'gone' },
      queueDepth: null,
      retries: 3,
      timeoutMs: 60_000,
      container: { id: 'c', machineId: 'm' } as unknown as ContainerRow,
      deploymentName: 'hello/v3',
      servers: [],
      scaling: null,
      leaderAnswered: true,
      callbacks: [],
      pool: NO_POOL,
      quota: [],
      ...changes,
    });
    expect([...Value.Errors(Explanation, found)]).toEqual([]);
    return found;
  };

  test.each(TASK_STATUSES)('that is %s is explained', (status) => {
    expect(explained({}, { status }).summary).toMatch(/^task t of hello\/v3 ./);
  });

  test('that waits for a pool without machines says so, and one that has ended does not', () => {
    const pool = { name: 'gpu', lack: lackOf('gpu', true, []) };
    const found = explained({ pool, scaling: scalingOf({ inFlight: 1, waiting: 1 }) });
    expect(found.details).toContain('pool gpu has no machine');
    expect(found.next_steps).toEqual(['admit one to it: `longshore machine create --pool gpu`']);
    expect(explained({ pool }, { status: 'ERROR' }).details).not.toContain('pool gpu has no machine');
  });

  test('that waits says its place, and until when', () => {
    const server = { container_id: 'c', state: 'RUNNING', machine_id: 'm', takes: false };
    const full = { ...server, why_not: 'all of its 2 slots are taken' };
    const found = explained({ place: { kind: 'waiting', position: 4 }, queueDepth: 9, servers: [full] });
    expect(found).toMatchObject({
      summary: 'task t of hello/v3 is number 4 in its queue; no container can take it now',
      waits_for: 'a free slot in a container',
      until: at(7200_000),
    });
    expect(found.details).toEqual([
      '9 tasks in its queue, this one included',
      '1 container cannot take it: all of its 2 slots are taken',
    ]);
  });

  test('of a model server shows which number asked for the containers', () => {
    const tokens = { reserved: 150_000, perContainer: 60_000 };
    const scaling = scalingOf({ inFlight: 3, waiting: 1, tasksPerContainer: 16, maxContainers: 4, tokens });
    expect(scaling.formula).toBe(
      '3 tasks / 16 per container = 1, 150000 reserved tokens / 60000 per container = 3, between 0 and 4: 3 wanted',
    );
  });

  test('of a deployment with a schedule says until when containers are kept by it', () => {
    const warm = { least: 3, until: '18:00', changesAtMs: undefined };
    const scaling = scalingOf({ inFlight: 0, minContainers: 3, maxContainers: 5, warm });
    expect(scaling.formula).toContain('between 3 and 5 (3 containers until 18:00 by schedule): 3 wanted');
    expect(scalingOf({ inFlight: 0, warm: { ...warm, least: 0 } }).formula).not.toContain('by schedule');
  });

  test('whose containers have no place says what the machines said', () => {
    const wait = placementWait({
      rejections: { too_small: 1 },
      timesReturned: 0,
      notBeforeMs: null,
      createdAtMs: NOW - 1000,
    });
    const pending = aContainer({ state: 'PENDING' });
    const scaling = scalingOf({ inFlight: 1, waiting: 1, containers: [pending] }, { place: { wait } });
    const found = explained({ place: { kind: 'waiting', position: 1 }, scaling });
    expect(found.details).toEqual([
      scaling.formula,
      '1 container without a place: 1 machine too small for it, even when empty (too_small)',
    ]);
    expect(found.next_steps[0]).toMatch(/^ask for less `cpu` or `memory`/);
  });

  test('whose container could not start says why, and where its lines are', () => {
    const failed = { status: 'ERROR', failureReason: 'start_failed', endedAtMs: NOW } as const;
    const result = JSON.stringify({ error: 'Traceback\nRuntimeError: the model is not there\n' });
    const container = {
      id: 'endpoint-s-1',
      state: 'FAILED',
      reason: 'user_error',
      exitCode: 1,
      message: 'RuntimeError',
    } as unknown as ContainerRow;
    const found = explained({ container }, { ...failed, containerId: container.id, result });
    expect(found).toMatchObject({
      summary: 'task t of hello/v3 is ERROR (start_failed): no container could start for it',
      details: ['container endpoint-s-1 did not start (user_error, exit code 1): RuntimeError: the model is not there'],
      next_steps: [
        '`longshore logs --container endpoint-s-1` shows what it wrote',
        'correct what failed, and deploy again',
      ],
      task: { attempts: [] },
    });
    const lacking = JSON.stringify({ error: "Traceback\nModuleNotFoundError: No module named 'numpy'\n" });
    const steps = explained({ container }, { ...failed, containerId: container.id, result: lacking }).next_steps;
    expect(steps[1]).toMatch(/lacks numpy: .*python_packages/);
    // Older records do not name their container.
    const unnamed = explained({ container: undefined }, { ...failed, result });
    expect(unnamed.details).toEqual(['its container did not start: RuntimeError: the model is not there']);
    expect(unnamed.next_steps[0]).toBe('`longshore logs hello/v3` shows what its containers wrote');
  });

  test('that ended several containers points at the lines of the last, others at their own', () => {
    const steps = (failureReason: string) => explained({}, { ...ran, status: 'ERROR', failureReason }).next_steps[0];
    expect(steps('poison_task')).toBe('`longshore logs --container c` shows what its container wrote');
    expect(steps('process_exited')).toBe('`longshore logs --task t` shows what it wrote');
    expect(steps('handler_error')).toBe('`longshore logs --task t` shows what it wrote');
  });

  test('that failed says its error, and asks for memory where that was short', () => {
    const failed = (error: string, failureReason = 'handler_error') =>
      explained(
        {},
        {
          ...({ ...ran, status: 'ERROR' } as const),
          failureReason,
          result: JSON.stringify({ error }),
        },
      );
    expect(failed('ValueError: no luck\n\nTraceback …').details).toEqual(['its error: ValueError: no luck']);
    expect(failed('x'.repeat(1000)).details[0]).toHaveLength(313);
    expect(explained({}, { status: 'COMPLETE', result: '{"error":"not one"}' }).details).toEqual([]);
    const short = failed('process ran out of memory', 'process_exited');
    expect(short.details).toEqual(['its error: process ran out of memory']);
    expect(short.next_steps).toEqual([
      "give its handler more memory than it has, such as `memory='2gi'`, and deploy again",
      '`longshore logs --task t` shows what it wrote',
    ]);
    expect(failed('process exited (code 139)', 'process_exited').next_steps[0]).toMatch(/^code 139 is SIGSEGV: /);
    expect(failed('process exited (code 134)', 'process_exited').next_steps[0]).toMatch(/^code 134 is SIGABRT: /);
    expect(failed('process exited (code 137)', 'process_exited').next_steps[0]).toMatch(/^code 137 is SIGKILL: /);
    expect(failed('process exited (code 3)', 'process_exited').next_steps).toHaveLength(1);
    expect(failed('task ran longer than its limit of 2 s', 'execution_timeout').next_steps[0]).toBe(
      'raise timeout= in its definition and deploy again, or make each call shorter',
    );
    const result = JSON.stringify({ error: 'n is missing', detail: 'the handler takes n' });
    const wrong = explained({}, { ...ran, status: 'ERROR', failureReason: 'invalid_request_payload', result });
    expect(wrong.next_steps[0]).toBe('call it with another input: the handler takes n');
    expect(failed("ModuleNotFoundError: No module named 'numpy.linalg'").next_steps[0]).toMatch(/lacks numpy: .*Image/);
    expect(failed("ModuleNotFoundError: No module named 'numpy'\n\nTraceback …").next_steps[0]).toMatch(/lacks numpy/);
    expect(failed('RuntimeError: said "No module named \'numpy\'"').next_steps[0]).toMatch(/^`longshore logs/);
  });

  test('that waited for a container to start says how long that took', () => {
    const start = { durationMs: 900, hasOnStart: false, steps: [{ id: 'image.load', durationMs: 600 }] };
    expect(explained({ start }, { status: 'COMPLETE', containerId: 'c' as ContainerId }).details).toContain(
      'the start of container c, for which it waited, took 900 ms: 600 ms image and code',
    );
  });

  test('that runs says until when it may', () => {
    const running = { status: 'RUNNING', containerId: 'c', attempt: 1, startedAtMs: NOW - 5000 } as const;
    const server = { container_id: 'c', state: 'RUNNING', machine_id: 'm', takes: false };
    const servers = [{ ...server, why_not: 'its only slot is taken' }];
    expect(explained({ place: { kind: 'active' }, servers }, running as never)).toMatchObject({
      summary: 'task t of hello/v3 runs, attempt 1',
      details: [],
      until: at(55_000),
      task: { attempts: [{ attempt: 1, container_id: 'c', machine_id: 'm', outcome: 'running' }] },
    });
  });

  test('counts the attempts that containers had, and not those that they never began', () => {
    const result = JSON.stringify({ error: "KeyError: 'x'\n\nTraceback" });
    const past = [
      {
        attempt: 2,
        containerId: 'a',
        machineId: 'm',
        startedAtMs: NOW - 900,
        endedAtMs: NOW - 800,
        outcome: 'handler_error',
        error: "KeyError: 'y'",
      },
    ];
    // The first and the third fetch of the task reached containers that did not begin it.
    const found = explained({}, { ...ran, attempt: 4, status: 'ERROR', failureReason: 'handler_error', result, past });
    expect(found.summary).toBe('task t of hello/v3 is ERROR (handler_error), after 2 attempts');
    expect(found.task?.attempts.map(({ attempt, error }) => [attempt, error])).toEqual([
      [2, "KeyError: 'y'"],
      [4, "KeyError: 'x'"],
    ]);
    const waited = {
      status: 'EXPIRED',
      failureReason: 'expired',
      attempt: 1,
      containerId: 'c' as ContainerId,
    } as const;
    expect(explained({}, waited)).toMatchObject({
      summary: 'task t of hello/v3 is EXPIRED (expired): no container began it',
      task: { attempts: [] },
      next_steps: ['no container began it: `longshore explain hello/v3` says whether its containers have a place now'],
    });
  });

  test('that is tried again says when, and what became of its attempts', () => {
    const past = [
      {
        attempt: 1,
        containerId: 'a',
        machineId: 'm',
        startedAtMs: NOW - 900,
        endedAtMs: NOW - 800,
        outcome: 'handler_error',
      },
      {
        attempt: 2,
        containerId: 'b',
        machineId: 'm',
        startedAtMs: NOW - 500,
        endedAtMs: NOW - 400,
        outcome: 'handler_error',
      },
    ];
    const job = { retriesUsed: 2, retries: 3, past, timeoutMs: 0 } as unknown as TaskFacts['job'];
    const retry = { status: 'RETRY', attempt: 2, containerId: 'b', failureReason: 'handler_error' } as const;
    const found = explained({ job, place: { kind: 'delayed', dueMs: NOW + 3000 } }, retry as never);
    expect(found).toMatchObject({
      summary: 'task t of hello/v3 failed (handler_error) and is tried again',
      until: at(3000),
      task: { next_retry_at: at(3000), retries_used: 2, retries: 3 },
    });
    expect(found.task?.attempts.map((one) => [one.attempt, one.container_id, one.outcome])).toEqual([
      [1, 'a', 'handler_error'],
      [2, 'b', 'handler_error'],
    ]);
    const ended = (preemptions: number) =>
      explained({ job: { ...job, preemptions } as TaskFacts['job'] }, retry as never).details;
    expect(ended(1)).toContain('1 attempt ended with interruptible containers, for other workspaces, at no cost');
    expect(ended(3)).toContain(
      '3 attempts ended with interruptible containers, for other workspaces, at no cost; it is not interrupted again',
    );
    const done = {
      status: 'COMPLETE',
      attempt: 3,
      containerId: 'c',
      startedAtMs: NOW,
      endedAtMs: NOW,
      past,
    } as const;
    expect(explained({}, done as never).task?.attempts.map((one) => one.outcome)).toEqual([
      'handler_error',
      'handler_error',
      'complete',
    ]);
  });
});
