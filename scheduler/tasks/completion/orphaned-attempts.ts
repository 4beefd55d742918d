// Attempts leased to a machine whose agent does not name them in its report, or which is given up. Their
// process died, or had lost the link, before the order reached the agent. An agent names what it runs and
// keeps every result until it is acknowledged. So an attempt that the same agent process does not name never
// began: it goes back to the queue, with no budget touched. A restarted agent may have run it: it is lost.
// Invariants: only leases count that stood before the first order on the new
// stream, and no attempt of this process. The lock token fences the rest.
import type { AttemptToken, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { attemptHashOf, sha256Hex } from '#shared/domain/ids.ts';
import { sleep } from '#shared/backoff.ts';
import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Lease, Leases } from '../dispatch/leases.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Attempts } from '../dispatch/attempts.ts';
import { attemptOf } from '../dispatch/attempts.ts';
import type { Completion } from './completion.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { GracePeriods } from '../maintenance/grace-periods.ts';

export interface OrphanedAttemptsParts {
  readonly queues: Pick<TaskQueues, 'locksOf'>;
  readonly leases: Pick<Leases, 'readAll' | 'ofMachine'>;
  readonly attempts: Pick<Attempts, 'current'>;
  readonly completion: Pick<Completion, 'backToQueue' | 'lost'>;
  readonly graces: Pick<GracePeriods, 'reportMs' | 'restartedAgentMs' | 'movedMs'>;
  readonly clock: Clock;
  readonly metrics: Pick<TaskMetrics, 'attemptsLost'>;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/** Reason for taking an attempt back; `not_received`: it never began. */
type Reason = 'not_received' | 'agent_restarted' | 'machine_lost';

/** Attempts that are looked up together. */
const PAGE = 500;

/** An attempt in its grace. */
interface InGrace {
  readonly lease: Lease;
  readonly hash: string;
  readonly grace: { named: boolean };
}

export class OrphanedAttempts {
  readonly #parts: OrphanedAttemptsParts;
  /**
   * Attempts in their grace, by the hash of their token: a heartbeat that names
   * one ends the grace. {@link find} bounds their number within the longest grace.
   */
  readonly #inGrace = new Map<string, { named: boolean }>();

  constructor(parts: OrphanedAttemptsParts) {
    this.#parts = parts;
  }

  /**
   * Attempts that are leased to that machine and that its report does not name. Call this before anything is sent on
   * the new stream: all earlier leases belong to an older stream, of which the agent accepts nothing any more. The cost
   * follows the leases of that machine. When a store does not answer, nothing is found, and the stall scan takes over.
   */
  async find(machineId: MachineId, named: Iterable<AttemptToken>): Promise<readonly Lease[]> {
    try {
      return await this.#find(machineId, named);
    } catch (error) {
      this.#parts.log.warn({ err: error, machineId }, 'what a machine does not have any more is not looked for');
      return [];
    }
  }

  async #find(machineId: MachineId, named: Iterable<AttemptToken>): Promise<readonly Lease[]> {
    const { leases, attempts } = this.#parts;
    const isOpen = (taskId: TaskId): boolean => attempts.current(taskId) === undefined;
    const found = await leases.ofMachine(machineId, isOpen);
    if (found.length === 0) return found;
    const hashes = new Set<string>();
    for (const token of named) hashes.add(sha256Hex(token));
    return found.filter(({ job, lock }) => !hashes.has(attemptHashOf(lock)) && isOpen(job.taskId));
  }

  /**
   * Takes attempts back after a grace: the replica that has one may be ending it just now.
   * @param isCurrent - whether that report is still the machine's last one, according to all replicas
   */
  async takeBack(found: readonly Lease[], agentInstance: string, isCurrent: () => Promise<boolean>): Promise<void> {
    const { graces } = this.#parts;
    const sameAgent = (lease: Lease): boolean => lease.agentInstance === agentInstance;
    const [never, maybe] = [found.filter(sameAgent), found.filter((lease) => !sameAgent(lease))];
    await Promise.all([
      this.#after(graces.reportMs, never, 'not_received', isCurrent),
      this.#after(graces.restartedAgentMs, maybe, 'agent_restarted', isCurrent),
    ]);
  }

  /**
   * Looks again once every replica knows of the new link: one
   * that did not may have sent on the old link after the report.
   */
  async lookAgain(
    machineId: MachineId,
    named: ReadonlySet<AttemptToken>,
    agentInstance: string,
    isCurrent: () => Promise<boolean>,
  ): Promise<void> {
    if (!(await sleep(this.#parts.graces.movedMs, this.#parts.signal))) return;
    await this.takeBack(await this.find(machineId, named), agentInstance, isCurrent);
  }

  /**
   * Ends the attempts of a machine that is given up, except those of living
   * processes, which end them themselves. A grace gives them time for that.
   */
  async machineLost(machineId: MachineId, isStillLost: () => boolean): Promise<void> {
    const found = await this.find(machineId, []);
    await this.#after(this.#parts.graces.reportMs, found, 'machine_lost', () => Promise.resolve(isStillLost()));
  }

  async #after(
    graceMs: number,
    leases: readonly Lease[],
    reason: Reason,
    isCurrent: () => Promise<boolean>,
  ): Promise<void> {
    const { signal, log } = this.#parts;
    if (leases.length === 0) return;
    const graces = leases.map((lease) => ({ lease, hash: attemptHashOf(lease.lock), grace: { named: false } }));
    for (const { hash, grace } of graces) this.#inGrace.set(hash, grace);
    try {
      if (!(await sleep(graceMs, signal))) return;
      for (let at = 0; at < graces.length; at += PAGE) {
        const page = graces.slice(at, at + PAGE);
        try {
          if (!(await this.#endPage(page, reason, isCurrent))) return;
        } catch (error) {
          log.warn({ err: error, attempts: page.length }, 'tasks that their machine does not have stay where they are');
        }
      }
    } finally {
      for (const { hash, grace } of graces) if (this.#inGrace.get(hash) === grace) this.#inGrace.delete(hash);
    }
  }

  /**
   * Notes that a heartbeat names that attempt, so that its machine has it after all.
   * @returns whether it was about to be taken back
   */
  named(token: AttemptToken): boolean {
    if (this.#inGrace.size === 0) return false;
    const grace = this.#inGrace.get(sha256Hex(token));
    if (grace === undefined) return false;
    grace.named = true;
    return true;
  }

  /**
   * Ends the attempts whose leases and locks still stand; one command reads all of either kind. They end together:
   * the answers get no older than that.
   * @returns false: the report does not count any more
   */
  async #endPage(page: readonly InGrace[], reason: Reason, isCurrent: () => Promise<boolean>): Promise<boolean> {
    const { queues, leases, attempts, log } = this.#parts;
    const open = page.filter(({ grace }) => !grace.named).map((one) => ({ ...one, ...placeOf(one.lease) }));
    if (open.length === 0) return true;
    const held = await leases.readAll(open.map(({ taskId }) => taskId));
    const locks = await queues.locksOf(open);
    if (!(await isCurrent())) return false;
    const ends = open.map(async ({ lease, taskId, grace }, at) => {
      const isHeld = held.get(taskId)?.lock === lease.lock && locks[at] === lease.lock;
      // A heartbeat may have come meanwhile.
      if (!isHeld || grace.named || attempts.current(taskId) !== undefined) return;
      try {
        await this.#end(lease, reason);
      } catch (error) {
        log.warn({ err: error, taskId }, 'a task that its machine does not have stays where it is');
      }
    });
    await Promise.all(ends);
    return true;
  }

  async #end(lease: Lease, reason: Reason): Promise<void> {
    const { completion, clock, metrics, log } = this.#parts;
    const { taskId } = lease.job;
    const facts = { taskId, containerId: lease.containerId, machineId: lease.machineId, reason };
    log.warn(facts, 'a task that its machine does not have is taken back');
    // No process here and no agent knows the token; the lock identifies the attempt.
    const attempt = attemptOf(lease, '' as AttemptToken, clock.monotonicMs());
    if (reason === 'not_received') {
      await completion.backToQueue(attempt, reason);
      return;
    }
    metrics.attemptsLost.inc({ reason });
    await completion.lost(attempt, false);
  }
}

const placeOf = ({ job, queue }: Lease): { readonly taskId: TaskId; readonly queue: QueueName } => ({
  taskId: job.taskId,
  queue: queue as QueueName,
});
