// Synchronous attempts of a machine that dialled another replica. The one that sent them hands them over, again and
// again until the other has judged each by the report with which its link began (handover.ts), because only that report
// is newer than every order of earlier links (R5). Then the first decides nothing more about them.
import type {
  AttemptToken,
  ContainerId,
  InstanceId,
  LockToken,
  MachineId,
  QueueName,
  TaskId,
} from '#shared/domain/ids.ts';
import { attemptHashOf, sha256Hex } from '#shared/domain/ids.ts';
import { repeat, sleep } from '#shared/backoff.ts';
import type { StubKind } from '#shared/domain/status.ts';
import type { Log } from '#shared/log.ts';
import type { Bus } from '../../cluster/bus.ts';
import { checkTaskJob } from '../../stores/queues/jobs.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { Completion } from '../completion/completion.ts';
import type { LiveReport, MachineReport, Reports } from '../completion/reports.ts';
import type { Attempt, Attempts } from '../dispatch/attempts.ts';
import { adoptedOf } from '../dispatch/attempts.ts';
import type { SlotTable } from '../dispatch/slots.ts';
import type { GracePeriods } from '../maintenance/grace-periods.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { TaskRecord } from '../records/task-record.ts';
import type { TaskRecords } from '../records/records.ts';
import type { LinkReport, MachineLink } from './handover.ts';
import { heirOf, judgeOrder } from './handover.ts';
import type { LineTask } from './line.ts';
import type { Lines } from './lines.ts';
import { isOut } from './offers.ts';

const TICK_MS = 1_000;
/** How long an attempt that nobody knows waits for the replica that sent it. */
const STRANGER_MS = 5_000;
const MOST_IN_ONE = 100;
/** How long after its report a restarted agent's runners dial it, and heartbeats name more attempts. */
const LATE_NAMES_MS = 60_000;
const MOST_STRANGERS = 10_000;
/** How long a replica that stops waits for the others to take its attempts over. */
const OVER_MS = 5_000;
const OVER_LOOK_MS = 50;
const NOBODY = 'nobody' as InstanceId;

/** An order on its way to the replica of its machine's present link. */
interface Moved {
  /** SHA-256 of the attempt's token. */
  readonly hash: string;
  readonly attempt: number;
  readonly queue: QueueName;
  readonly containerId: ContainerId;
  readonly sentAtMs: number;
  readonly sessionEpoch: number;
  readonly agentInstance: string;
  /** Without its input. */
  readonly job: TaskJob;
}

type Handover = readonly ['handover', InstanceId, MachineId, readonly Moved[]];
type Handed = readonly ['handed', InstanceId, MachineId, readonly string[]];

/** The present link of a machine. */
interface Link {
  readonly report: LinkReport & { readonly named: Set<string> };
  readonly sinceMs: number;
  /** Attempts that the report names and that this replica knows nothing of, by the hash of their tokens. */
  readonly strangers: Map<string, Stranger>;
}

interface Stranger {
  readonly live: LiveReport;
  readonly sinceMs: number;
  /** Resolved once the attempt is adopted, or its agent was told to stop it. */
  readonly over: PromiseWithResolvers<void>;
}

export interface MovesParts {
  readonly bus: Bus;
  readonly channelOf: (replica: InstanceId) => string;
  readonly instance: InstanceId;
  readonly isPresent: (replica: InstanceId) => boolean;
  /** Link of the machine by its row; undefined: there is no such machine. `isHere`: this replica has it. */
  readonly linkOf: (machineId: MachineId) => (MachineLink & { readonly isHere: boolean }) | undefined;
  /** Whether synchronous calls run in that container. */
  readonly isSync: (containerId: ContainerId) => boolean;
  readonly lines: Pick<Lines, 'line' | 'known' | 'movedTo' | 'adopt'>;
  readonly attempts: Pick<Attempts, 'current' | 'ofMachine' | 'all'>;
  readonly completion: Pick<Completion, 'handOver' | 'lost' | 'backToQueue'>;
  /** Adopts an attempt; set late, because reports tell of moves. */
  readonly adopt: Reports['adopt'];
  readonly slots: Pick<SlotTable, 'get'>;
  readonly records: Pick<TaskRecords, 'readSurely'>;
  /** Other replicas that are present. */
  readonly present: () => Iterable<InstanceId>;
  readonly graces: Pick<GracePeriods, 'restartedAgentMs'>;
  readonly metrics: Pick<TaskMetrics, 'attemptsLost'>;
  readonly log: Log;
  readonly signal: AbortSignal;
}

export class Moves {
  readonly name = 'moves of machines';
  readonly #parts: MovesParts;
  readonly #links = new Map<MachineId, Link>();
  /** Machines that are linked elsewhere, and of which attempts are here. */
  readonly #leaving = new Set<MachineId>();

  constructor(parts: MovesParts) {
    this.#parts = parts;
    const { bus, channelOf, instance } = parts;
    bus.on(channelOf(instance), (message) => {
      const [kind] = message as Handover | Handed;
      if (kind === 'handover') this.#hearHandover(message as Handover);
      else if (kind === 'handed') this.#hearHanded(message as Handed);
    });
  }

  start(): void {
    const { signal, log } = this.#parts;
    const failed = (error: unknown): void => log.warn({ err: error }, 'attempts of moved machines not looked at');
    void repeat(TICK_MS, signal, () => this.tick(), failed);
  }

  /**
   * Notes the report with which a machine's link began.
   * @param unknown - attempts that nobody here knows
   * @returns those among them that run, and that the agent must end
   */
  reported(
    machineId: MachineId,
    report: MachineReport,
    unknown: { readonly running: readonly LiveReport[]; readonly finished: readonly LiveReport[] },
  ): LiveReport[] {
    const { sessionEpoch, agentInstance, running, finished = [] } = report;
    const named = new Set([...running, ...finished].map(({ token }) => sha256Hex(token)));
    const sinceMs = performance.now();
    const link: Link = { report: { sessionEpoch, agentInstance, named }, sinceMs, strangers: new Map() };
    this.#dropLink(machineId);
    this.#links.set(machineId, link);
    this.#leaving.delete(machineId);
    const refused: LiveReport[] = [];
    for (const live of unknown.running) if (!this.#wait(link, live)) refused.push(live);
    // Their results follow.
    for (const live of unknown.finished) this.#wait(link, live);
    return refused;
  }

  /** Notes that a heartbeat names an attempt that is not here: its runner dialled the restarted agent later. */
  named(machineId: MachineId, live: LiveReport): void {
    const link = this.#links.get(machineId);
    if (link === undefined || performance.now() - link.sinceMs > LATE_NAMES_MS || !this.#wait(link, live)) return;
    link.report.named.add(sha256Hex(live.token));
  }

  /** Lets an attempt wait whose order's replica may tell of it. @returns false: it tells nothing */
  #wait({ strangers }: Link, live: LiveReport): boolean {
    // An agent that has the facts of its order has shown them.
    if ((live.facts?.length ?? 0) > 0 || !this.#parts.isSync(live.containerId)) return false;
    if (strangers.size >= MOST_STRANGERS) return false;
    const hash = sha256Hex(live.token);
    if (!strangers.has(hash)) strangers.set(hash, { live, sinceMs: performance.now(), over: Promise.withResolvers() });
    return true;
  }

  /** Resolves once this replica knows what an attempt of that machine is, at once where it waits for nothing. */
  async judged(machineId: MachineId, token: AttemptToken): Promise<void> {
    await this.#links.get(machineId)?.strangers.get(sha256Hex(token))?.over.promise;
  }

  /** Whether an attempt of the task runs here whose order's replica is still waited for. */
  hasStranger(taskId: TaskId): boolean {
    for (const { strangers } of this.#links.values())
      for (const { live } of strangers.values()) if (live.taskId === taskId) return true;
    return false;
  }

  /** Whether the machine is linked elsewhere, and attempts of it are here. */
  isLeaving(machineId: MachineId): boolean {
    return this.#leaving.has(machineId);
  }

  /** Called when the machine's agent has dialled another replica. */
  moved(machineId: MachineId): void {
    this.#dropLink(machineId);
    this.#leaving.add(machineId);
    this.#handOver(machineId);
  }

  /**
   * Resolves once other replicas have all synchronous attempts of this one, whose links are closed, or after a moment:
   * an order that its agent never read would else count as sent.
   */
  async over(): Promise<void> {
    const { attempts, signal } = this.#parts;
    const untilMs = performance.now() + OVER_MS;
    const isOpen = (): boolean => {
      for (const { job, ending } of attempts.all()) if (job.sync && ending === undefined) return true;
      return false;
    };
    while (isOpen() && !this.#isAlone() && performance.now() < untilMs)
      if (!(await sleep(OVER_LOOK_MS, signal))) return;
  }

  async tick(): Promise<void> {
    for (const machineId of [...this.#leaving]) this.#handOver(machineId);
    const sinceMs = performance.now() - (this.#isAlone() ? 0 : STRANGER_MS);
    const due: Promise<void>[] = [];
    for (const [machineId, link] of this.#links) {
      if (this.#parts.linkOf(machineId)?.isHere !== true) this.#dropLink(machineId);
      else
        for (const [hash, stranger] of link.strangers)
          if (stranger.sinceMs <= sinceMs) due.push(this.#judgeByRow(machineId, link, hash, stranger));
    }
    const [failed] = (await Promise.allSettled(due)).filter(({ status }) => status === 'rejected');
    // The rows of all of them are looked at again.
    if (failed?.status === 'rejected') throw failed.reason;
  }

  /** Whether no other replica is present. */
  #isAlone(): boolean {
    return [...this.#parts.present()].length === 0;
  }

  #dropLink(machineId: MachineId): void {
    for (const { over } of this.#links.get(machineId)?.strangers.values() ?? []) over.resolve();
    this.#links.delete(machineId);
  }

  /** Nobody handed the attempt over: its row says what it is, and without one its agent must end it. */
  async #judgeByRow(
    machineId: MachineId,
    { report, strangers }: Link,
    hash: string,
    stranger: Stranger,
  ): Promise<void> {
    const { records, slots } = this.#parts;
    const { live, over } = stranger;
    const record = await records.readSurely(live.taskId);
    if (strangers.get(hash) !== stranger) return;
    strangers.delete(hash);
    const container = slots.get(live.containerId);
    const isItsOwn = container?.machineId === machineId && record?.queue === container.queue;
    if (isItsOwn && record.sync && record.rank < 3) {
      const { sessionEpoch, agentInstance } = report;
      // A task that waits by its row was sent after that record.
      const attempt = record.status === 'RUNNING' ? record.attempt : record.attempt + 1;
      const sentAtMs = record.startedAtMs ?? record.createdAtMs;
      const facts = {
        v: 1,
        attempt,
        queue: record.queue,
        sentAtMs,
        job: jobOf(record),
        sessionEpoch,
        agentInstance,
      } as const;
      this.#parts.adopt(machineId, live, facts);
    } else container?.link?.cancel(live.taskId, live.token, 'superseded');
    over.resolve();
  }

  #handOver(machineId: MachineId): void {
    const { attempts, linkOf, instance, isPresent } = this.#parts;
    const open = [...attempts.ofMachine(machineId)].filter(({ job, ending }) => job.sync && ending === undefined);
    const machine = linkOf(machineId);
    if (open.length === 0 || machine === undefined) {
      this.#leaving.delete(machineId);
      return;
    }
    const orders = open.filter((attempt) => heirOf(attempt, machine, instance, isPresent) !== undefined);
    const { replica } = machine;
    if (replica === null) return;
    for (let at = 0; at < orders.length; at += MOST_IN_ONE)
      this.#publish(replica, ['handover', instance, machineId, orders.slice(at, at + MOST_IN_ONE).map(movedOf)]);
  }

  #publish(to: InstanceId, message: Handover | Handed): void {
    const { bus, channelOf } = this.#parts;
    bus.publish(channelOf(to), message);
  }

  #hearHandover([, from, machineId, orders]: Handover): void {
    const { instance, log } = this.#parts;
    const link = this.#links.get(machineId);
    if (link === undefined) return;
    const hashes: string[] = [];
    for (const order of orders) {
      try {
        checkTaskJob(order.job);
        if (this.#takeOver(machineId, order, link)) hashes.push(order.hash);
      } catch (error) {
        log.warn({ err: error, replica: from }, 'another replica hands over an attempt that cannot be read');
      }
    }
    if (hashes.length > 0) this.#publish(from, ['handed', instance, machineId, hashes]);
  }

  /** @returns false: this replica cannot judge the order yet */
  #takeOver(machineId: MachineId, order: Moved, link: Link): boolean {
    const { attempts, lines, completion, metrics, graces, instance } = this.#parts;
    const { hash, attempt, job } = order;
    const verdict = judgeOrder(order, link.report);
    if (verdict === 'later') return false;
    const own = attempts.current(job.taskId);
    if (own !== undefined && attemptHashOf(own.lock) === hash) return true;
    if (job.replica === instance && !isOpen(lines.line.get(job.taskId), attempt)) return true;
    const known = lines.known.get(job.taskId);
    if (known !== undefined && known.attempt >= attempt && known.what.kind !== 'moved') return true;
    const stranger = link.strangers.get(hash);
    if (verdict === 'named' && stranger?.live.containerId === order.containerId) {
      link.strangers.delete(hash);
      const { sessionEpoch, agentInstance } = link.report;
      this.#parts.adopt(machineId, stranger.live, { ...order, v: 1, sessionEpoch, agentInstance });
      stranger.over.resolve();
      return true;
    }
    // A runner may dial a restarted agent after its report.
    if (verdict === 'lost' && performance.now() - link.sinceMs < graces.restartedAgentMs) return false;
    const lock = `${instance}.${hash}` as LockToken;
    // No agent knows the attempt: the lock identifies it.
    const token = '' as AttemptToken;
    const { queue, containerId, sentAtMs, sessionEpoch, agentInstance } = order;
    const facts = { job, queue, token, lock, number: attempt, machineId, containerId, sentAtMs, sessionEpoch };
    const gone = adoptedOf({ ...facts, agentInstance }, performance.now());
    lines.adopt({ queue, job, attempt, lock });
    if (verdict === 'never_began') void completion.backToQueue(gone, 'not_received');
    else {
      metrics.attemptsLost.inc({ reason: 'agent_restarted' });
      void completion.lost(gone, false);
    }
    return true;
  }

  #hearHanded([, from, machineId, hashes]: Handed): void {
    const { attempts, completion, lines } = this.#parts;
    const judged = new Set(hashes);
    const epoch = this.#links.get(machineId)?.report.sessionEpoch;
    for (const attempt of [...attempts.ofMachine(machineId)]) {
      const { job, lock, ending, sessionEpoch } = attempt;
      if (!job.sync || ending !== undefined || sessionEpoch === epoch || !judged.has(attemptHashOf(lock))) continue;
      completion.handOver(attempt);
      lines.movedTo(job.taskId, lock, from);
    }
  }
}

/** Job of a task that runs, from its record: without its input, and without a limit of this replica's own. */
const jobOf = (record: TaskRecord): TaskJob => ({
  v: 1,
  taskId: record.taskId,
  workspaceId: record.workspaceId,
  stubId: record.stubId,
  deploymentId: record.deploymentId,
  kind: record.kind as StubKind,
  sync: true,
  replica: record.replica ?? NOBODY,
  timeoutMs: 0,
  deadlineMs: record.deadlineMs,
  createdAtMs: record.createdAtMs,
  attempts: 0,
  retries: 0,
  retriesUsed: 0,
});

/** Whether the attempt of a task whose caller waits here is under way, as far as is known here. */
const isOpen = (task: LineTask | undefined, attempt: number): boolean =>
  task?.place.attempt === attempt && isOut(task.place);

function movedOf(attempt: Attempt): Moved {
  const { lock, number, queue, containerId, sentAtMs, sessionEpoch, agentInstance } = attempt;
  const { input: _input, ...job } = attempt.job;
  return {
    hash: attemptHashOf(lock),
    attempt: number,
    queue,
    containerId,
    sentAtMs,
    sessionEpoch,
    agentInstance,
    job,
  };
}
