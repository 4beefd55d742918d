// Log streams of agents: each batch of lines is acknowledged once it is written.
import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { MachineId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { LogAck, LogBatch__Output } from '#shared/protocol/generated/messages.ts';
import { grpcError } from '../grpc-errors.ts';
import type { LogSink } from './log-sink.ts';

export type LogCall = ServerDuplexStream<LogBatch__Output, LogAck>;

/**
 * Open log streams of one machine; the oldest ends when another one
 * opens. An agent has one, and for a moment that of the session before.
 */
const MOST_LOG_STREAMS = 2;

export class LogStreams {
  readonly #sink: Pick<LogSink, 'append'>;
  readonly #log: Log;
  readonly #calls = new Map<MachineId, Set<LogCall>>();

  constructor(sink: Pick<LogSink, 'append'>, log: Log) {
    this.#sink = sink;
    this.#log = log;
  }

  /** Serves a stream, which is paused and speaks for that machine. */
  serve(machineId: MachineId, call: LogCall): void {
    this.#keep(machineId, call);
    call.on('error', () => undefined);
    call.on('end', () => call.end());
    call.on('data', (batch: LogBatch__Output) => {
      // The credential was good when the stream was opened; the machine
      // may be deleted since, and its lines then count for nothing.
      if (this.#calls.get(machineId)?.has(call) !== true) return;
      call.pause();
      void this.#sink
        .append(machineId, batch)
        .then(() => call.write({ seq: batch.seq }))
        .catch((error: unknown) => {
          this.#log.warn({ err: error, machineId }, 'log lines not written; the agent sends them again');
          // A later batch that is written would have this one pass for written, too.
          this.#calls.get(machineId)?.delete(call);
          call.end();
        })
        .finally(() => call.resume());
    });
    call.resume();
  }

  /** Ends the streams of a machine. */
  end(machineId: MachineId): void {
    for (const call of this.#calls.get(machineId) ?? []) endStream(call);
  }

  #keep(machineId: MachineId, call: LogCall): void {
    const calls = this.#calls.get(machineId) ?? new Set();
    this.#calls.set(machineId, calls.add(call));
    const ended = (): void => {
      calls.delete(call);
      if (calls.size === 0 && this.#calls.get(machineId) === calls) this.#calls.delete(machineId);
    };
    for (const event of ['end', 'cancelled', 'error', 'close']) call.on(event, ended);
    const [oldest] = calls;
    if (calls.size > MOST_LOG_STREAMS && oldest !== undefined) endStream(oldest);
  }
}

/** Ends a log stream: no later message of it counts. */
const endStream = (call: LogCall): void =>
  void call.emit('error', grpcError(new AppError('session_superseded', 'this log stream is over')));
