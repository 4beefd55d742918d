// One task stream of one machine's agent, bound to its control session: run, cancel and acknowledgements down; report, starts, chunks and results up.
import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { AttemptToken, ContainerId, MachineId, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { PART_BYTES } from '#shared/protocol/link.ts';
import type { TaskFromAgent__Output, TaskReport__Output, TaskToAgent } from '#shared/protocol/generated/messages.ts';
import type { RunOrder, TaskLink } from '../dispatch/slots.ts';
import type { AttemptOutcome } from '../tasks/state.ts';
import type { LiveReport, Tasks } from '../tasks/service.ts';

export type TaskCall = ServerDuplexStream<TaskFromAgent__Output, TaskToAgent>;

/** Bytes handed to the stream and not sent yet, above which no more tasks go to this machine. */
const MAX_BUFFERED_BYTES = 64 * 1024 * 1024;

const OUTCOMES: ReadonlySet<string> = new Set(['ok', 'error', 'retry', 'timeout', 'cancelled', 'exited', 'lost']);

export class TaskStream implements TaskLink {
  readonly machineId: MachineId;
  readonly agentInstance: string;
  readonly #call: TaskCall;
  readonly #tasks: Tasks;
  readonly #log: Log;
  readonly #onReady: () => void;
  #closed = false;
  #bufferedBytes = 0;

  constructor(parts: {
    readonly machineId: MachineId;
    readonly agentInstance: string;
    readonly call: TaskCall;
    readonly tasks: Tasks;
    readonly log: Log;
    /** The agent's report was answered: tasks may be sent. */
    readonly onReady: () => void;
    readonly onEnd: () => void;
  }) {
    this.machineId = parts.machineId;
    this.agentInstance = parts.agentInstance;
    this.#call = parts.call;
    this.#tasks = parts.tasks;
    this.#log = parts.log;
    this.#onReady = parts.onReady;
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

  acked(taskId: TaskId, token: AttemptToken): void {
    this.#write({ acked: { taskId, token } }, 0);
  }

  #write(message: TaskToAgent, bytes: number): void {
    if (this.#closed) return;
    const cost = bytes + 256;
    this.#bufferedBytes += cost;
    this.#call.write(message, () => {
      this.#bufferedBytes -= cost;
    });
  }

  #receive(message: TaskFromAgent__Output): void {
    if (message.result) void this.#result(message.result);
    else if (message.started)
      this.#tasks.started(message.started.taskId as TaskId, message.started.token as AttemptToken);
    else if (message.chunk) {
      this.#tasks.chunk(message.chunk.taskId as TaskId, message.chunk.token as AttemptToken, message.chunk.data);
    } else if (message.refused) {
      const { taskId, token, reason } = message.refused;
      void this.#tasks.refused(taskId as TaskId, token as AttemptToken, reason);
    } else if (message.report) void this.#report(message.report);
  }

  async #result(result: NonNullable<TaskFromAgent__Output['result']>): Promise<void> {
    const taskId = result.taskId as TaskId;
    const token = result.token as AttemptToken;
    try {
      const kept = await this.#tasks.result(this.machineId, {
        taskId,
        token,
        containerId: result.containerId as ContainerId,
        outcome: OUTCOMES.has(result.outcome) ? (result.outcome as AttemptOutcome) : 'lost',
        durationMs: result.durationMs,
        body: result.body,
      });
      if (kept) this.acked(taskId, token);
    } catch (error) {
      this.#log.warn({ err: error, taskId }, 'a result could not be taken; the agent sends it again');
    }
  }

  async #report(report: TaskReport__Output): Promise<void> {
    try {
      const answer = await this.#tasks.machineReported(
        this.machineId,
        this.agentInstance,
        report.running as unknown as readonly LiveReport[],
      );
      this.#write({ known: { adopted: answer.adopted, refused: answer.refused } }, 0);
      this.#onReady();
    } catch (error) {
      this.#log.warn({ err: error, machineId: this.machineId }, 'task report could not be taken');
      this.#call.end();
    }
  }
}
