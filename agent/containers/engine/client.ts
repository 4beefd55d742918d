// The connection to the engine. Every call has a deadline, and at most 16 run at once.
import Docker from 'dockerode';
import { withDeadline } from '#shared/backoff.ts';
import { Limiter } from '../limiter.ts';
import { EngineError } from '../runtime.ts';
import { statusOf } from './errors.ts';
import { connectionOptions } from './options.ts';

export const CALL_DEADLINE_MS = 30_000;
/** Idle time after which a query's connection closes; the caller has given up at the call's deadline. */
const QUESTION_SILENCE_MS = CALL_DEADLINE_MS + 1000;
const CALLS_AT_ONCE = 16;

/** Counts a call of the engine. */
export type OnEngineCall = (operation: string, result: 'ok' | 'error', seconds: number) => void;

export class EngineClient {
  readonly docker: Docker;
  /**
   * A second client of the same engine, with an idle timeout, for queries about each container. An abort signal for
   * each request instead would cost a third of the query.
   */
  readonly questions: Docker;
  readonly onCall: OnEngineCall;
  readonly #limit = new Limiter(CALLS_AT_ONCE);

  constructor(host: string | undefined, onCall: OnEngineCall) {
    this.docker = new Docker(connectionOptions(host));
    this.questions = new Docker({ ...connectionOptions(host), timeout: QUESTION_SILENCE_MS });
    this.onCall = onCall;
  }

  /** Runs one call inside the limit and its deadline, and counts it. */
  call<T>(
    operation: string,
    call: (abortSignal: AbortSignal) => Promise<T>,
    deadlineMs = CALL_DEADLINE_MS,
  ): Promise<T> {
    return this.#limit.run(() => this.timed(operation, call, deadlineMs));
  }

  /** Runs one call inside its deadline alone, and counts it. */
  async timed<T>(
    operation: string,
    call: (abortSignal: AbortSignal) => Promise<T>,
    deadlineMs: number,
    late = (): EngineError =>
      new EngineError('unavailable', `the container engine did not answer ${operation} in ${deadlineMs} ms`),
  ): Promise<T> {
    const from = performance.now();
    const abort = new AbortController();
    try {
      const result = await withDeadline(call(abort.signal), deadlineMs, late);
      this.onCall(operation, 'ok', (performance.now() - from) / 1000);
      return result;
    } catch (error) {
      // The abort keeps the request from outliving its deadline.
      abort.abort();
      this.onCall(operation, (statusOf(error) ?? 500) < 500 ? 'ok' : 'error', (performance.now() - from) / 1000);
      throw error;
    }
  }
}
