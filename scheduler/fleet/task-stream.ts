// One task stream of one machine's agent, bound to its control session: run, cancel and acknowledgements down; report, starts, chunks and results up.
import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { AttemptToken, ContainerId, MachineId, TaskId } from '#shared/domain/ids.ts';
import { beginsEventStream } from '#shared/domain/event-stream.ts';
import type { Log } from '#shared/log.ts';
import { PART_BYTES, PART_COST_BYTES } from '#shared/protocol/link.ts';
import type {
  TaskChunk__Output,
  TaskFromAgent__Output,
  TaskReport__Output,
  TaskResult__Output,
  TaskToAgent,
} from '#shared/protocol/generated/messages.ts';
import type { RunOrder, TaskLink } from '../dispatch/slots.ts';
import type { AttemptOutcome } from '../tasks/state.ts';
import type { LiveReport } from '../tasks/reports.ts';
import type { Tasks } from '../tasks/service.ts';

export type TaskCall = ServerDuplexStream<TaskFromAgent__Output, TaskToAgent>;

/** Bytes handed to the stream and not sent yet, above which no more tasks go to this machine. */
const MAX_BUFFERED_BYTES = 64 * 1024 * 1024;

/** Parts of results held until their result comes; beyond this the newest ones count as too large. */
const MAX_HELD_BYTES = 256 * 1024 * 1024;

/** Acknowledgements wait this long for a message to travel with, and at most so many of them. */
const LINGER_MS = 20;
const MOST_LINGERING = 256;
const ACK_BYTES = 256;

/** Parts of one large result. */
interface Parts {
  readonly chunks: Buffer[];
  bytes: number;
  tooLarge: boolean;
  /** Each is an event that a caller gets as it comes. */
  readonly areItems: boolean;
}

const OUTCOMES: ReadonlySet<string> = new Set(['ok', 'error', 'retry', 'timeout', 'cancelled', 'exited', 'lost']);

export class TaskStream implements TaskLink {
  readonly machineId: MachineId;
  readonly agentInstance: string;
  readonly heartbeatIntervalMs: number;
  readonly #call: TaskCall;
  readonly #tasks: Tasks;
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
  /** By attempt token. They belong to the stream: an agent sends all parts again on its next one. */
  readonly #parts = new Map<string, Parts>();
  #heldBytes = 0;

  constructor(parts: {
    readonly machineId: MachineId;
    readonly agentInstance: string;
    readonly heartbeatIntervalMs: number;
    readonly call: TaskCall;
    readonly tasks: Tasks;
    readonly log: Log;
    /** The agent's report was answered: tasks may be sent. */
    readonly onReady: () => void;
    readonly onEnd: () => void;
    /** Whether no newer session speaks for the machine, here or at another replica. */
    readonly isCurrent: () => Promise<boolean>;
  }) {
    this.machineId = parts.machineId;
    this.agentInstance = parts.agentInstance;
    this.heartbeatIntervalMs = parts.heartbeatIntervalMs;
    this.#call = parts.call;
    this.#tasks = parts.tasks;
    this.#log = parts.log;
    this.#onReady = parts.onReady;
    this.#isCurrent = parts.isCurrent;
    const ended = (): void => {
      if (this.#closed) return;
      this.#closed = true;
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
    this.#call.end();
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

  /** Nobody waits for this: it travels with the next message, or after a moment. */
  acked(taskId: TaskId, token: AttemptToken): void {
    if (this.#closed) return;
    this.#batch.push({ acked: { taskId, token } });
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
    if (this.#batchRuns) this.#tasks.beforeRuns();
    this.#batch = [];
    this.#batchBytes = 0;
    this.#batchRuns = false;
    const [only] = messages;
    if (only === undefined || this.#closed) return;
    this.#call.write(messages.length === 1 ? only : { batch: { messages } }, () => {
      this.#bufferedBytes -= bytes;
    });
  }

  #receive(message: TaskFromAgent__Output): void {
    if (message.batch) for (const one of message.batch.messages) this.#receive(one);
    else if (message.result) void this.#result(message.result);
    else if (message.started)
      this.#tasks.started(message.started.taskId as TaskId, message.started.token as AttemptToken);
    else if (message.chunk) this.#keep(message.chunk);
    else if (message.refused) {
      const { taskId, token, reason } = message.refused;
      void this.#tasks.refused(taskId as TaskId, token as AttemptToken, reason);
    } else if (message.report) void this.#report(message.report);
  }

  async #result(result: TaskResult__Output): Promise<void> {
    const taskId = result.taskId as TaskId;
    const token = result.token as AttemptToken;
    const whole = this.#wholeOf(result);
    try {
      const kept = await this.#tasks.result(this.machineId, {
        taskId,
        token,
        containerId: result.containerId as ContainerId,
        outcome: whole !== 'incomplete' && OUTCOMES.has(result.outcome) ? (result.outcome as AttemptOutcome) : 'lost',
        durationMs: result.durationMs,
        body: whole === 'incomplete' ? result.body : whole,
      });
      if (kept) this.acked(taskId, token);
    } catch (error) {
      this.#log.warn({ err: error, taskId }, 'a result could not be taken; the agent sends it again');
    }
  }

  #keep(chunk: TaskChunk__Output): void {
    if (chunk.seq === 0) this.#drop(chunk.token);
    let parts = this.#parts.get(chunk.token);
    if (parts === undefined) {
      parts = { chunks: [], bytes: 0, tooLarge: false, areItems: chunk.seq === 0 && beginsEventStream(chunk.data) };
      this.#parts.set(chunk.token, parts);
    }
    if (parts.tooLarge || chunk.seq !== parts.chunks.length) return;
    const cost = chunk.data.length + PART_COST_BYTES;
    if (parts.bytes + cost > this.#tasks.maxResultBytes || this.#heldBytes > MAX_HELD_BYTES) {
      this.#drop(chunk.token);
      this.#parts.set(chunk.token, { chunks: [], bytes: 0, tooLarge: true, areItems: false });
      return;
    }
    parts.chunks.push(chunk.data);
    parts.bytes += cost;
    this.#heldBytes += cost;
    if (parts.areItems) this.#tasks.item(chunk.taskId as TaskId, chunk.token as AttemptToken, chunk.seq, chunk.data);
  }

  /** The result with its parts; undefined: too large. */
  #wholeOf(result: TaskResult__Output): Buffer | 'incomplete' | undefined {
    const parts = this.#parts.get(result.token);
    this.#drop(result.token);
    // An agent that gave up on a large result counts no parts of it.
    if (result.chunks === 0) return result.body;
    if (parts?.tooLarge === true) return undefined;
    if (parts?.chunks.length !== result.chunks) {
      this.#log.warn({ taskId: result.taskId, machineId: this.machineId }, 'a result came without all of its parts');
      return 'incomplete';
    }
    return Buffer.concat([...parts.chunks, result.body]);
  }

  #drop(token: string): void {
    this.#heldBytes -= this.#parts.get(token)?.bytes ?? 0;
    this.#parts.delete(token);
  }

  async #report(report: TaskReport__Output): Promise<void> {
    try {
      const answer = await this.#tasks.machineReported(this.machineId, {
        agentInstance: this.agentInstance,
        running: report.running as unknown as readonly LiveReport[],
        finished: report.finished as unknown as readonly LiveReport[],
        isCurrent: async () => !this.#closed && (await this.#isCurrent()),
      });
      this.#write({ known: { adopted: answer.adopted, refused: answer.refused } }, 0);
      this.#onReady();
    } catch (error) {
      this.#log.warn({ err: error, machineId: this.machineId }, 'task report could not be taken');
      this.#call.end();
    }
  }
}
