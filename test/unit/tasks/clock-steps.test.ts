// No step of the wall clock and no stall of the scheduler ends an
// attempt. Time that passes without a message of its agent does.
import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, test, vi } from 'vitest';
import type { AttemptToken, ContainerId, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import type { Lease } from '#scheduler/tasks/dispatch/leases.ts';
import type { ReadyContainer, TaskLink } from '#scheduler/tasks/dispatch/slots.ts';
import { StallDetector } from '#scheduler/fleet/stall.ts';
import { Attempts, attemptOf } from '#scheduler/tasks/dispatch/attempts.ts';
import type { Attempt } from '#scheduler/tasks/dispatch/attempts.ts';
import type { StartDeadlineParts } from '#scheduler/tasks/maintenance/start-deadline.ts';
import { StartDeadline } from '#scheduler/tasks/maintenance/start-deadline.ts';
import { GRACE_PERIODS } from '#scheduler/tasks/maintenance/grace-periods.ts';
import type { ReaperParts } from '#scheduler/tasks/maintenance/reaper.ts';
import { Reaper } from '#scheduler/tasks/maintenance/reaper.ts';
import type { SenderParts } from '#scheduler/tasks/dispatch/sending.ts';
import { Sender } from '#scheduler/tasks/dispatch/sending.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';

const quiet = createLog({ level: 'silent', name: 'test' });
const STEPS = [600_000, -600_000];

/** The owners of a replica's attempts, two clocks, and the attempts that they ended. */
function aReplica(heartbeatIntervalMs?: number) {
  const at = { wallMs: 1_700_000_000_000, monotonicMs: 1_000 };
  const clock = { nowMs: () => at.wallMs, monotonicMs: () => at.monotonicMs };
  const attempts = new Attempts();
  const stall = new StallDetector(clock, quiet);
  const ended: string[] = [];
  const end = (attempt: Attempt): Promise<boolean> => {
    ended.push(attempt.job.taskId);
    return Promise.resolve(true);
  };
  const tasks = {
    attempts,
    clock,
    graces: { ...GRACE_PERIODS, silentMs: 0, claimAnswerMs: 0 },
    sinceStallMs: () => stall.sinceStallMs(),
    completion: { abandon: end, takeBack: end, revoke: end },
    metrics: { attemptsLost: { inc: () => undefined } },
    signal: new AbortController().signal,
    log: quiet,
  } as unknown as SenderParts & ReaperParts & StartDeadlineParts;
  const link = {
    cancel: (taskId: TaskId) => ended.push(taskId),
    ...(heartbeatIntervalMs === undefined ? {} : { heartbeatIntervalMs }),
  } as unknown as TaskLink;
  /** Time passes, and the timers of the process with it. */
  const pass = (ms: number): void => {
    for (let left = ms; left > 0; left -= 250) {
      const step = Math.min(250, left);
      at.wallMs += step;
      at.monotonicMs += step;
      stall.tick();
    }
  };
  /** The process is stopped, and goes on. */
  const stop = (ms: number): void => {
    at.wallMs += ms;
    at.monotonicMs += ms;
  };
  const send = (sync: boolean, started = true): Attempt => {
    const job = { taskId: randomUUID(), sync, timeoutMs: 30_000 } as unknown as TaskJob;
    const lease = { job, queue: 'tq-1' as QueueName, machineId: 'm' as MachineId, containerId: 'c' as ContainerId };
    const token = `token of ${job.taskId}` as AttemptToken;
    const attempt: Attempt = {
      ...attemptOf({ ...lease, startedAtMs: at.wallMs } as unknown as Lease, token, at.monotonicMs),
      container: { link } as ReadyContainer,
      startedAtMs: started ? at.wallMs : null,
    };
    attempts.add(attempt);
    return attempt;
  };
  return {
    at,
    /** A heartbeat names that attempt. */
    hear: (attempt: Attempt): void => attempts.named([named(attempt)], clock),
    attempts,
    ended,
    pass,
    stop,
    send,
    reaper: new Reaper(tasks),
    startDeadline: new StartDeadline(tasks),
    sender: new Sender(tasks),
  };
}

afterEach(() => {
  vi.useRealTimers();
});

const named = ({ job, token, containerId }: Attempt) => ({ taskId: job.taskId, token, containerId });

describe('what runs', () => {
  test.each(STEPS)('outlives a step of the wall clock by %i ms', async (stepMs) => {
    const { at, ended, pass, send, reaper, startDeadline } = aReplica();
    for (const sync of [true, false]) for (const started of [true, false]) send(sync, started);
    pass(10_000);
    at.wallMs += stepMs;
    await reaper.check();
    startDeadline.check();
    pass(4_000);
    await reaper.check();
    startDeadline.check();
    expect(ended).toEqual([]);
  });

  test('outlives a stop of the scheduler of 90 s: its agent has a whole lease to name it', async () => {
    const { ended, pass, stop, send, hear, reaper, startDeadline } = aReplica();
    const kept = send(true);
    const silent = send(false);
    const unclaimed = send(false, false);
    pass(5_000);
    stop(90_000);
    await reaper.check();
    startDeadline.check();
    expect(ended).toEqual([]);
    pass(14_000);
    startDeadline.check();
    expect(ended).toEqual([]);
    pass(2_000);
    startDeadline.check();
    expect(ended).toEqual([unclaimed.job.taskId]);
    pass(43_000);
    await reaper.check();
    expect(ended).toHaveLength(1);
    hear(kept);
    pass(2_000);
    await reaper.check();
    expect(ended).toContain(silent.job.taskId);
    expect(ended).not.toContain(kept.job.taskId);
  });

  test('is lost when no heartbeat names it for a minute, wherever the wall clock was set meanwhile', async () => {
    const { at, ended, pass, send, hear, reaper } = aReplica();
    const lost = send(false);
    const kept = send(false);
    at.wallMs -= 600_000;
    pass(59_000);
    await reaper.check();
    expect(ended).toEqual([]);
    hear(kept);
    pass(2_000);
    await reaper.check();
    expect(ended).toEqual([lost.job.taskId]);
  });

  test('has six heartbeats where its agent was told to send one every minute', async () => {
    const { ended, pass, send, reaper } = aReplica(60_000);
    const { taskId } = send(false).job;
    pass(359_000);
    await reaper.check();
    expect(ended).toEqual([]);
    pass(2_000);
    await reaper.check();
    expect(ended).toEqual([taskId]);
  });

  test.each(STEPS)('keeps its execution limit when the wall clock is set by %i ms', (stepMs) => {
    vi.useFakeTimers();
    const { at, ended, pass, send, sender } = aReplica();
    const attempt = send(false);
    // Another process sent the attempt, by another clock.
    sender.armLimit({ ...attempt, sentAtMs: at.wallMs - 600_000 });
    at.wallMs += stepMs;
    pass(39_000);
    vi.advanceTimersByTime(39_000);
    expect(ended).toEqual([]);
    pass(1_000);
    vi.advanceTimersByTime(1_000);
    expect(ended).toEqual([attempt.job.taskId]);
  });

  test('is not ended by a limit that passed while the scheduler was stopped: its result may lie unread', () => {
    vi.useFakeTimers();
    const { ended, pass, stop, send, sender } = aReplica();
    const attempt = send(true);
    sender.armLimit(attempt);
    stop(90_000);
    vi.advanceTimersByTime(90_000);
    expect(ended).toEqual([]);
    pass(10_000);
    vi.advanceTimersByTime(10_000);
    expect(ended).toEqual([attempt.job.taskId]);
  });
});
