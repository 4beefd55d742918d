// The task stream of one machine's agent, bound to its control session: run,
// cancel and acknowledgements down; report, starts, chunks and results up.
import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { AttemptToken, ContainerId, MachineId, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { PART_BYTES } from '#shared/protocol/link.ts';
import type {
  AttemptsKnown,
  LiveAttempt,
  LiveAttempt__Output,
  TaskChunk__Output,
  TaskFromAgent__Output,
  TaskReport__Output,
  TaskResult__Output,
  TaskToAgent,
} from '#shared/protocol/generated/messages.ts';
import type { RunOrder, TaskLink } from '../tasks/dispatch/slots.ts';
import type { AttemptOutcome } from '../tasks/state.ts';
import type { LiveReport, Reports } from '../tasks/completion/reports.ts';
import type { AttemptResult, Attempts } from '../tasks/dispatch/attempts.ts';
import type { Leases } from '../tasks/dispatch/leases.ts';
import type { PartsBudget, Standing } from './result-parts.ts';
import { ResultParts } from './result-parts.ts';

export type TaskCall = ServerDuplexStream<TaskFromAgent__Output, TaskToAgent>;

/** Bytes handed to the stream and not sent yet, above which no more tasks go to this machine. */
const MAX_BUFFERED_BYTES = 64 * 1024 * 1024;

/**
 * Results whose end is being decided, and acknowledgements that the agent has not read: above this bound the stream is
 * not read on. Results whose record is on its way to the database do not count.
 */
const MOST_RESULTS = 512;
const MOST_RESULT_BYTES = 64 * 1024 * 1024;
const MOST_UNREAD_ACKS = 16_384;

/** Attempts that one report may name, in all of its messages. */
const MOST_REPORTED = 50_000;
/** Bound on the length of ids and tokens: a longer one is invalid. */
const MAX_NAME_LENGTH = 200;
/** Most attempts that one message of the answer names. */
const MOST_ANSWERED = 2000;

/** Time that acknowledgements wait for a message to travel with, and the most of them that wait. */
const LINGER_MS = 20;
const MOST_LINGERING = 256;
const ACK_BYTES = 256;

const OUTCOMES: ReadonlySet<string> = new Set([
  'ok',
  'error',
  'invalid',
  'retry',
  'timeout',
  'cancelled',
  'exited',
  'lost',
]);

/** Parts of tasks that hear of the agents' streams. */
export interface StreamedTasks {
  readonly reports: Pick<Reports, 'started' | 'item' | 'result' | 'refused' | 'machineReported' | 'maxResultBytes'>;
  readonly attempts: Pick<Attempts, 'find' | 'revoked'>;
  /** Leases of run orders are written before the orders leave. */
  readonly leases: Pick<Leases, 'flush'>;
}

export class TaskStream implements TaskLink {
  readonly machineId: MachineId;
  readonly agentInstance: string;
  readonly sessionEpoch: number;
  readonly heartbeatIntervalMs: number;
  readonly #call: TaskCall;
  readonly #tasks: StreamedTasks;
  readonly #log: Log;
  readonly #onReady: () => void;
  readonly #isCurrent: () => Promise<boolean>;
  #closed = false;
  #bufferedBytes = 0;
  #batch: TaskToAgent[] = [];
  #batchBytes = 0;
  #batchRuns = false;
  #flushing: NodeJS.Immediate | undefined;
  #lingering: NodeJS.Timeout | undefined;
  readonly #parts: ResultParts;
  /** Tokens that the machine's report named, until each result has come. */
  readonly #named = new Set<string>();
  #report: TaskReport__Output | undefined;
  #isReporting = false;
  #isReady = false;
  #results = 0;
  #resultBytes = 0;
  /** Acknowledgements that the agent has not read yet, and the part of them that is in the stream. */
  #unreadAcks = 0;
  #sentAcks = 0;
  #isHeld = false;

  constructor(parts: {
    readonly machineId: MachineId;
    readonly agentInstance: string;
    readonly sessionEpoch: number;
    readonly heartbeatIntervalMs: number;
    readonly call: TaskCall;
    readonly tasks: StreamedTasks;
    /** Shared by all task streams. */
    readonly budget: PartsBudget;
    readonly log: Log;
    /** The agent's report was answered: tasks may be sent. */
    readonly onReady: () => void;
    readonly onEnd: () => void;
    /** Whether this session is the machine's newest, here and at every other replica. */
    readonly isCurrent: () => Promise<boolean>;
  }) {
    this.machineId = parts.machineId;
    this.agentInstance = parts.agentInstance;
    this.sessionEpoch = parts.sessionEpoch;
    this.heartbeatIntervalMs = parts.heartbeatIntervalMs;
    this.#call = parts.call;
    this.#tasks = parts.tasks;
    this.#log = parts.log;
    this.#onReady = parts.onReady;
    this.#isCurrent = parts.isCurrent;
    this.#parts = new ResultParts(parts.budget, parts.tasks.reports.maxResultBytes);
    const ended = (): void => {
      if (this.#closed) return;
      this.#closed = true;
      this.#parts.dropAll();
      parts.onEnd();
    };
    parts.call.on('data', (message: TaskFromAgent__Output) => this.#receive(message));
    parts.call.on('error', ended);
    parts.call.on('cancelled', ended);
    parts.call.on('end', () => {
      ended();
      parts.call.end();
    });
  }

  close(): void {
    this.#flush();
    this.#closed = true;
    this.#parts.dropAll();
    this.#call.end();
  }

  /** Whether the agent's report was answered: tasks may be sent. */
  get isReady(): boolean {
    return this.#isReady;
  }

  run(order: RunOrder): boolean {
    if (this.#closed || this.#bufferedBytes > MAX_BUFFERED_BYTES) return false;
    const input = Buffer.from(order.input, 'utf8');
    const head = {
      taskId: order.taskId,
      token: order.token,
      containerId: order.containerId,
      timeoutMs: order.timeoutMs,
      query: order.query === undefined ? '' : JSON.stringify(order.query),
      stream: order.stream === true,
      ...(order.facts === undefined ? {} : { facts: order.facts }),
    };
    let part = 0;
    let offset = 0;
    do {
      const end = Math.min(offset + PART_BYTES, input.length);
      const slice = input.subarray(offset, end);
      offset = end;
      this.#write(
        {
          run: {
            ...(part === 0 ? head : { taskId: head.taskId, token: head.token, containerId: head.containerId }),
            input: slice,
            part,
            last: offset >= input.length,
          },
        },
        slice.length,
      );
      part += 1;
    } while (offset < input.length);
    return true;
  }

  cancel(taskId: TaskId, token: AttemptToken, reason: string): void {
    this.#write({ cancel: { taskId, token, reason } }, 0);
  }

  /** Acknowledges a result: the acknowledgement travels with the next message, or after a moment. */
  acked(taskId: TaskId, token: AttemptToken): void {
    if (this.#closed) return;
    this.#batch.push({ acked: { taskId, token } });
    this.#unreadAcks += 1;
    this.#batchBytes += ACK_BYTES;
    this.#bufferedBytes += ACK_BYTES;
    if (this.#batch.length >= MOST_LINGERING) this.#flush();
    else this.#lingering ??= setTimeout(() => this.#flush(), LINGER_MS);
  }

  /** Messages of one turn of the loop travel together, in order. */
  #write(message: TaskToAgent, bytes: number): void {
    if (this.#closed) return;
    const cost = bytes + 256;
    this.#bufferedBytes += cost;
    if (this.#batchBytes + cost > PART_BYTES) this.#flush();
    this.#batch.push(message);
    this.#batchBytes += cost;
    this.#batchRuns ||= message.run !== undefined;
    this.#flushing ??= setImmediate(() => this.#flush());
  }

  #flush(): void {
    clearImmediate(this.#flushing);
    this.#flushing = undefined;
    clearTimeout(this.#lingering);
    this.#lingering = undefined;
    const messages = this.#batch;
    const bytes = this.#batchBytes;
    if (this.#batchRuns) this.#tasks.leases.flush();
    this.#batch = [];
    this.#batchBytes = 0;
    this.#batchRuns = false;
    const [only] = messages;
    if (only === undefined || this.#closed) return;
    const acks = this.#unreadAcks - this.#sentAcks;
    this.#sentAcks += acks;
    this.#call.write(messages.length === 1 ? only : { batch: { messages } }, () => {
      this.#bufferedBytes -= bytes;
      this.#unreadAcks -= acks;
      this.#sentAcks -= acks;
      if (this.#isHeld) this.#hold(0, 0);
    });
  }

  #receive(message: TaskFromAgent__Output): void {
    if (message.batch) for (const one of message.batch.messages) this.#receiveOne(one);
    else this.#receiveOne(message);
  }

  /** Handles one message; a batch within a batch is ignored. */
  #receiveOne(message: TaskFromAgent__Output): void {
    if (this.#closed) return;
    if (message.result) void this.#result(message.result);
    else if (message.started)
      this.#tasks.reports.started(message.started.taskId as TaskId, message.started.token as AttemptToken);
    else if (message.chunk) this.#keep(message.chunk);
    else if (message.refused) {
      const { taskId, token, reason } = message.refused;
      void this.#tasks.reports.refused(this.machineId, taskId as TaskId, token as AttemptToken, reason);
    } else if (message.report) this.#reportPart(message.report);
  }

  async #result(result: TaskResult__Output): Promise<void> {
    const taskId = result.taskId as TaskId;
    const token = result.token as AttemptToken;
    const whole = this.#wholeOf(result);
    const bytes = typeof whole === 'string' ? 0 : (whole?.length ?? 0);
    this.#hold(1, bytes);
    let isHeld = true;
    const release = (): void => {
      if (isHeld) this.#hold(-1, -bytes);
      isHeld = false;
    };
    try {
      const taken: AttemptResult = {
        taskId,
        token,
        containerId: result.containerId as ContainerId,
        outcome: whole !== 'incomplete' && OUTCOMES.has(result.outcome) ? (result.outcome as AttemptOutcome) : 'lost',
        durationMs: result.durationMs,
        body: whole === 'incomplete' ? result.body : whole,
      };
      const kept = await this.#tasks.reports.result(this.machineId, taken, release);
      if (kept) {
        this.#named.delete(token);
        this.acked(taskId, token);
      }
    } catch (error) {
      this.#log.warn({ err: error, taskId }, 'a result could not be taken; the agent sends it again');
    } finally {
      release();
    }
  }

  /** Counts results that are being taken: an agent that sends more than can be handled waits. */
  #hold(results: number, bytes: number): void {
    this.#results += results;
    this.#resultBytes += bytes;
    const tooMany =
      this.#results > MOST_RESULTS || this.#resultBytes > MOST_RESULT_BYTES || this.#unreadAcks > MOST_UNREAD_ACKS;
    if (tooMany === this.#isHeld) return;
    this.#isHeld = tooMany;
    if (tooMany) this.#call.pause();
    else this.#call.resume();
  }

  #keep(chunk: TaskChunk__Output): void {
    const standing = this.#standingOf(chunk);
    if (standing !== undefined && this.#parts.keep(chunk, standing))
      this.#tasks.reports.item(chunk.taskId as TaskId, chunk.token as AttemptToken, chunk.seq, chunk.data);
  }

  /** The attempt's standing; undefined: not an attempt of this machine. */
  #standingOf({ taskId, token }: TaskChunk__Output): Standing | undefined {
    const attempt = this.#tasks.attempts.find(taskId as TaskId, token as AttemptToken);
    if (attempt !== undefined) return attempt.machineId === this.machineId ? attempt.job.workspaceId : undefined;
    // A late result of an attempt that was ended here may still count.
    const isRevoked = this.#tasks.attempts.revoked(token as AttemptToken)?.machineId === this.machineId;
    return isRevoked || this.#named.has(token) ? 'named' : undefined;
  }

  /** The result with its parts; undefined: too large. */
  #wholeOf(result: TaskResult__Output): Buffer | 'incomplete' | undefined {
    // An agent that gave up on a large result counts no parts of it.
    const parts = this.#parts.take(result.token, result.chunks);
    if (parts === 'too_large') return undefined;
    if (parts === 'incomplete') {
      this.#log.warn({ taskId: result.taskId, machineId: this.machineId }, 'a result came without all of its parts');
      return 'incomplete';
    }
    return parts.length === 0 ? result.body : Buffer.concat([...parts, result.body]);
  }

  /** Handles a part of a report. A large report comes in several messages, and counts when the last one has come. */
  #reportPart(part: TaskReport__Output): void {
    const { more } = part;
    const [running, finished] = [part.running.filter(isNamed), part.finished.filter(isNamed)];
    if (this.#isReporting) {
      this.#log.warn({ machineId: this.machineId }, 'a task report came before the one before it was answered');
      this.#call.end();
      return;
    }
    const before = this.#report;
    if (before === undefined) this.#named.clear();
    const report = {
      running: before === undefined ? running : [...before.running, ...running],
      finished: before === undefined ? finished : [...before.finished, ...finished],
      more,
    };
    if (report.running.length + report.finished.length > MOST_REPORTED) {
      this.#log.warn({ machineId: this.machineId }, 'a task report names more attempts than a machine can have');
      this.#call.end();
      return;
    }
    this.#report = more ? report : undefined;
    for (const { token } of [...running, ...finished]) this.#named.add(token);
    if (!more) void this.#reported(report);
  }

  async #reported(report: TaskReport__Output): Promise<void> {
    this.#isReporting = true;
    try {
      const answer = await this.#tasks.reports.machineReported(this.machineId, {
        agentInstance: this.agentInstance,
        sessionEpoch: this.sessionEpoch,
        running: report.running as unknown as readonly LiveReport[],
        finished: report.finished as unknown as readonly LiveReport[],
        isCurrent: async () => !this.#closed && (await this.#isCurrent()),
      });
      for (const { token } of answer.refused) {
        this.#named.delete(token);
        this.#parts.drop(token);
      }
      for (const known of answersOf(answer.adopted.map(named), answer.refused.map(named)))
        this.#write({ known }, PART_BYTES / 2);
      this.#isReady = true;
      this.#onReady();
    } catch (error) {
      this.#log.warn({ err: error, machineId: this.machineId }, 'task report could not be taken');
      this.#call.end();
    } finally {
      this.#isReporting = false;
    }
  }
}

/** An attempt without its facts, which the agent has. */
const named = ({ taskId, token, containerId }: LiveReport): LiveAttempt => ({ taskId, token, containerId });

const isNamed = ({ taskId, token, containerId }: LiveAttempt__Output): boolean =>
  Math.max(taskId.length, token.length, containerId.length) <= MAX_NAME_LENGTH;

/** The answer in as many messages as necessary: an agent cancels the attempts that each refuses. */
function answersOf(adopted: readonly LiveAttempt[], refused: readonly LiveAttempt[]): AttemptsKnown[] {
  if (adopted.length + refused.length <= MOST_ANSWERED) return [{ adopted: [...adopted], refused: [...refused] }];
  const answers: AttemptsKnown[] = [];
  for (let at = 0; at < adopted.length; at += MOST_ANSWERED)
    answers.push({ adopted: adopted.slice(at, at + MOST_ANSWERED), refused: [] });
  for (let at = 0; at < refused.length; at += MOST_ANSWERED)
    answers.push({ adopted: [], refused: refused.slice(at, at + MOST_ANSWERED) });
  return answers;
}
