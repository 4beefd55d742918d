/**
 * A session with the scheduler: the control stream and, once it is welcomed, the task stream and the log stream on
 * the same channel. Ends when any of them ends, after three ping intervals of silence, or by request. Created and
 * replaced by the link.
 */
import type { ClientDuplexStream } from '@grpc/grpc-js';
import type { Log } from '#shared/log.ts';
import type {
  AgentLinkClient,
  ControlFromAgent,
  ControlToAgent__Output,
  LogAck__Output,
  LogBatch,
  TaskFromAgent,
  TaskToAgent__Output,
  Welcome__Output,
} from '#shared/protocol/generated/messages.ts';
import type { ShownHost } from '#shared/protocol/host-header.ts';
import { PART_BYTES } from '#shared/protocol/link.ts';
import type { LogBuffer } from '../containers/log-buffer.ts';
import type { TaskSink } from '../slots/attempts.ts';
import { bearer, shows } from './channel.ts';

const WELCOME_DEADLINE_MS = 10_000;
const DEFAULT_PING_MS = 2000;
const SILENT_PINGS = 3;
/** Time in which log lines are gathered into a batch. */
const LOG_LINGER_MS = 100;
/** Wait of a closing session for the last acknowledgement of lines. */
const LOG_ACK_MS = 1000;
/** Wait of a closing session for its goodbye to leave. */
const GOODBYE_MS = 2000;

export interface SessionEvents {
  /** Called when the control stream is welcomed. */
  onWelcome(session: Session, welcome: Welcome__Output): void;
  onControl(session: Session, message: ControlToAgent__Output): void;
  onTask(session: Session, message: TaskToAgent__Output): void;
  /** @param error - the reason; undefined for an ordinary end */
  onEnd(session: Session, error: unknown): void;
}

export class Session implements TaskSink {
  readonly client: AgentLinkClient;
  welcome: Welcome__Output | undefined;
  readonly #credential: () => string;
  readonly #events: SessionEvents;
  readonly #logs: LogBuffer;
  readonly #log: Log;
  readonly #control: ClientDuplexStream<ControlFromAgent, ControlToAgent__Output>;
  #tasks: ClientDuplexStream<TaskFromAgent, TaskToAgent__Output> | undefined;
  #logStream: ClientDuplexStream<LogBatch, LogAck__Output> | undefined;
  #batch: TaskFromAgent[] = [];
  #batchBytes = 0;
  #flushing: NodeJS.Immediate | undefined;
  #heardAtMs = performance.now();
  #ended = false;
  #silence: NodeJS.Timeout;
  #linger: NodeJS.Timeout | undefined;
  #lingerFull = false;
  /** Set while the session closes: nothing more is sent, and sent batches are awaited. */
  #onAllAcknowledged: (() => void) | undefined;

  constructor(
    client: AgentLinkClient,
    credential: () => string,
    hello: ControlFromAgent,
    events: SessionEvents,
    logs: LogBuffer,
    log: Log,
    host: ShownHost,
  ) {
    this.client = client;
    this.#credential = credential;
    this.#events = events;
    this.#logs = logs;
    this.#log = log;
    this.#control = client.control(shows(host, bearer(credential())));
    this.#silence = setTimeout(() => this.#end(new Error('no welcome in time')), WELCOME_DEADLINE_MS);
    this.#control.on('data', (message: ControlToAgent__Output) => this.#onControl(message));
    this.#control.on('error', (error: Error) => this.#end(error));
    this.#control.on('end', () => this.#end(undefined));
    this.#control.write(hello);
  }

  get lastHeardMs(): number {
    return this.#heardAtMs;
  }

  sendControl(message: ControlFromAgent): void {
    if (!this.#ended) this.#control.write(message);
  }

  /** Opens the task stream; the caller writes its report first. */
  openTasks(): void {
    if (this.#ended || this.#tasks !== undefined) return;
    const tasks = this.client.tasks(bearer(this.#credential(), this.welcome?.sessionId));
    tasks.on('data', (message: TaskToAgent__Output) => this.#events.onTask(this, message));
    tasks.on('error', (error: Error) => this.#end(error));
    tasks.on('end', () => this.#end(undefined));
    this.#tasks = tasks;
  }

  /**
   * Sends a task message. Messages of one turn of the loop travel together, in order. @returns whether the stream has
   * room for more
   */
  send(message: TaskFromAgent): boolean {
    if (this.#ended || this.#tasks === undefined) return true;
    if (message.chunk !== undefined || message.report !== undefined) {
      this.#flush();
      return this.#tasks.write(message);
    }
    const bytes = 256 + (message.result?.body?.length ?? 0);
    if (this.#batchBytes + bytes > PART_BYTES) this.#flush();
    this.#batch.push(message);
    this.#batchBytes += bytes;
    this.#flushing ??= setImmediate(() => this.#flush());
    return !this.#tasks.writableNeedDrain;
  }

  #flush(): void {
    clearImmediate(this.#flushing);
    this.#flushing = undefined;
    const messages = this.#batch;
    if (messages.length === 0) return;
    this.#batch = [];
    this.#batchBytes = 0;
    const [only] = messages;
    if (this.#ended) return;
    this.#tasks?.write(messages.length === 1 && only !== undefined ? only : { batch: { messages } });
  }

  onceWritable(callback: () => void): void {
    if (this.#ended || this.#tasks === undefined) {
      callback();
      return;
    }
    const tasks = this.#tasks;
    let called = false;
    const done = (): void => {
      if (called) return;
      called = true;
      callback();
    };
    tasks.once('drain', done);
    tasks.once('close', done);
  }

  openLogs(): void {
    if (this.#ended || this.#logStream !== undefined) return;
    const stream = this.client.logs(bearer(this.#credential(), this.welcome?.sessionId));
    stream.on('data', (ack: LogAck__Output) => {
      this.#logs.acknowledge(ack.seq);
      if (this.#logs.unacknowledged().length === 0) this.#onAllAcknowledged?.();
      this.logsWaiting();
    });
    stream.on('error', (error: Error) => this.#end(error));
    stream.on('end', () => this.#end(undefined));
    this.#logStream = stream;
    for (const batch of this.#logs.unacknowledged()) stream.write(batch);
    this.logsWaiting();
  }

  /** Log lines wait: a batch goes soon, or at once when enough of them wait. */
  logsWaiting(): void {
    if (this.#logStream === undefined || this.#onAllAcknowledged !== undefined) return;
    if (this.#logs.isEnough) return this.#sendLogs();
    if (this.#linger !== undefined || !this.#logs.mayTake) return;
    this.#linger = setTimeout(
      () => {
        this.#linger = undefined;
        this.#sendLogs();
      },
      this.#lingerFull ? 0 : LOG_LINGER_MS,
    );
  }

  /** Sends waiting log lines now. */
  #sendLogs(): void {
    const stream = this.#logStream;
    if (this.#ended || stream === undefined) return;
    for (;;) {
      const batch = this.#logs.take(Date.now());
      if (batch === undefined) break;
      stream.write(batch);
    }
    this.#lingerFull = this.#logs.waiting;
    this.logsWaiting();
  }

  /** Takes no further task: one that comes is left to the next session. */
  takeNoMore(): void {
    this.#tasks?.pause();
  }

  /** Sends the goodbye and closes: unsent lines and results stay here. */
  async close(goodbye: ControlFromAgent): Promise<void> {
    if (this.#ended) return;
    this.#sendLogs();
    this.#flush();
    await this.#logsAcknowledged();
    if (this.#ended) return;
    this.#control.write(goodbye);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, GOODBYE_MS);
      const done = (): void => {
        clearTimeout(timer);
        resolve();
      };
      this.#control.once('finish', done);
      this.#control.end();
    });
    this.#end(undefined);
  }

  /** Waits for acknowledgements: the next agent process would send unacknowledged lines again. */
  async #logsAcknowledged(): Promise<void> {
    clearTimeout(this.#linger);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, LOG_ACK_MS);
      this.#onAllAcknowledged = () => {
        clearTimeout(timer);
        resolve();
      };
      if (this.#logStream === undefined || this.#logs.unacknowledged().length === 0) this.#onAllAcknowledged();
    });
  }

  end(error?: unknown): void {
    this.#end(error);
  }

  #onControl(message: ControlToAgent__Output): void {
    if (this.#ended) return;
    this.#heardAtMs = performance.now();
    if (message.ping !== undefined && message.ping !== null) {
      this.#control.write({ pong: { seq: message.ping.seq } });
      return;
    }
    if (message.welcome !== undefined && message.welcome !== null && this.welcome === undefined) {
      this.welcome = message.welcome;
      clearTimeout(this.#silence);
      const limitMs = SILENT_PINGS * (message.welcome.pingIntervalMs || DEFAULT_PING_MS);
      this.#endAfterSilence(limitMs);
      this.#events.onWelcome(this, message.welcome);
      return;
    }
    if (this.welcome === undefined && message.message !== 'revoked')
      this.#log.warn({ kind: message.message }, 'message before the welcome ignored');
    else this.#events.onControl(this, message);
  }

  /** Ends the session after silence. The timer wakes only when the limit may be reached: at rest each timer counts. */
  #endAfterSilence(limitMs: number): void {
    const leftMs = limitMs - (performance.now() - this.#heardAtMs);
    if (leftMs > 0) this.#silence = setTimeout(() => this.#endAfterSilence(limitMs), Math.ceil(leftMs));
    else this.#end(new Error(`nothing heard from the scheduler for ${limitMs} ms`));
  }

  #end(error: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    clearTimeout(this.#silence);
    clearTimeout(this.#linger);
    clearImmediate(this.#flushing);
    this.#control.cancel();
    this.#tasks?.cancel();
    this.#logStream?.cancel();
    this.client.close();
    this.#events.onEnd(this, error);
  }
}
