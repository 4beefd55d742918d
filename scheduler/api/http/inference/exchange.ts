// A call of a model over a connection, from its checked request to its last byte: credits are held, a backend is asked,
// and the answer passes.
// Invariants: a caller who leaves ends the backend's request at once. A stream that broke off ends with an error frame,
// and without the frame that says it is whole.
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { OpenCall } from '../streams/open-calls.ts';
import { headersOf } from '../streams/common.ts';
import { AFFINITY_HEADER } from './backends.ts';
import { EXCHANGE_TIMES, ModelCall, chargeRequestOf, mostTokensOf } from './call.ts';
import type { ExchangeParts } from './call.ts';
import { errorObject, inferenceError, sendError } from './errors.ts';
import type { InferenceError } from './errors.ts';
import { backendFailed, unavailable } from './failures.ts';
import { holdCost, takeRate } from './hold-cost.ts';
import { classOf } from './metrics.ts';
import { LEFT_STATUS } from './route-event.ts';
import type { Prepared } from './prepared.ts';
import type { ClaimedKey } from './keyed-call.ts';

/** A caller who reads nothing of an answer, or of a waiting frame, for so long counts as gone. */
export const UNREAD_MS = 300_000;

/** Header with which a caller names its conversation, as it was sent. */
export function affinityOf({ headers }: FastifyRequest): string | undefined {
  const header = headers[AFFINITY_HEADER];
  return typeof header === 'string' ? header : undefined;
}

export class Exchange extends ModelCall implements OpenCall {
  readonly protocol = 'http';
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  /** Idempotency key of the call; undefined: none. */
  readonly key: ClaimedKey | undefined;
  #hasBegun = false;
  #hasLeft = false;
  #stopping: InferenceError | undefined;

  constructor(
    prepared: Prepared,
    to: {
      readonly requestId: string;
      readonly caller: Caller;
      readonly request: FastifyRequest;
      readonly reply: FastifyReply;
      readonly key: ClaimedKey | undefined;
      /** Stops counting the bytes of the request's body. */
      readonly release: () => void;
    },
    parts: ExchangeParts,
  ) {
    const { waitMs } = parts.times ?? EXCHANGE_TIMES;
    super(prepared, { ...to, affinity: affinityOf(to.request), waitMs }, parts);
    this.request = to.request;
    this.reply = to.reply;
    this.key = to.key;
  }

  get hasLeft(): boolean {
    return this.#hasLeft;
  }

  /** Runs the call. Failures are answered here, and settled by what was produced. */
  async run(serve: (exchange: Exchange) => Promise<void>): Promise<void> {
    const { raw } = this.reply;
    const closed = this.parts.openCalls.add(this);
    const onClose = (): void => {
      if (raw.writableFinished) return;
      this.#hasLeft = true;
      this.abort.abort(new Error('the caller left'));
    };
    raw.once('close', onClose);
    if (raw.destroyed) onClose();
    this.boundWait();
    let status = 200;
    try {
      await this.#reserve();
      await serve(this);
    } catch (error) {
      status = await this.#failed(error);
    } finally {
      this.answered();
      raw.off('close', onClose);
      if (raw.destroyed || this.answerBytes === 0) this.giveBackAnswer();
      else this.#untilRead();
      closed();
      this.parts.metrics.requests.inc({
        type: this.prepared.model.type,
        status: this.#hasLeft ? 'left' : classOf(status),
      });
      this.tellRoute(this.#hasLeft ? LEFT_STATUS : status);
    }
  }

  /** Counts the answer until its caller has read it. A caller who reads nothing for long is cut off. */
  #untilRead(): void {
    const { raw } = this.reply;
    const unread = setTimeout(() => raw.destroy(), UNREAD_MS).unref();
    raw.once('close', () => {
      clearTimeout(unread);
      this.giveBackAnswer();
    });
  }

  async #reserve(): Promise<void> {
    const { prepared, caller, parts, requestId } = this;
    this.tokensUsed = await takeRate(this.reply, parts.rates, caller.workspaceId, mostTokensOf(prepared));
    await holdCost(parts.charging, chargeRequestOf(prepared, requestId, caller));
    this.isHeld = true;
  }

  /** The head of the answer is out, or is about to be. */
  begun(): void {
    this.#hasBegun = true;
  }

  async answer(headers: Readonly<Record<string, string>>, text: string): Promise<void> {
    this.begun();
    // A caller who has left may send the call again, and gets this answer.
    await this.key?.keep({ headers, body: text });
    if (this.#hasLeft) return;
    void this.reply
      .code(200)
      .headers({ ...headers, 'openai-processing-ms': String(this.tookMs) })
      .send(text);
  }

  /** Takes the response over, and sends its head. */
  takeOver(headers: Readonly<Record<string, string>>): void {
    this.begun();
    void this.key?.spend();
    const own = headersOf(this.reply);
    this.reply.hijack();
    this.reply.raw.writeHead(200, Object.fromEntries([...own, ...Object.entries(headers)]));
  }

  async #failed(error: unknown): Promise<number> {
    await this.releaseHold();
    const { reply, parts, requestId } = this;
    const told = this.#stopping ?? inferenceError(error);
    if (!this.#hasBegun) await this.key?.release();
    if (this.#hasLeft) return LEFT_STATUS;
    if (told.status >= 500) {
      parts.log[told.status === 500 ? 'error' : 'info'](
        { err: told, requestId, model: this.prepared.model.name, code: told.code },
        'a call of a model failed',
      );
    }
    if (reply.sent || reply.raw.headersSent) {
      this.sendErrorFrame(told);
      return told.status;
    }
    sendError(reply, told, requestId);
    return told.status;
  }

  /** Ends a stream so that its caller sees the failure: clients take a plain end for a whole answer. */
  sendErrorFrame(error: InferenceError): void {
    const { raw } = this.reply;
    if (raw.destroyed || raw.writableEnded) return;
    raw.end(`data: ${JSON.stringify({ error: errorObject(error, this.requestId) })}\n\n`);
  }

  refuse(): void {
    if (this.#hasBegun) return;
    this.#stopping = unavailable('this scheduler is stopping: call again');
    this.abort.abort(this.#stopping);
  }

  cut(): void {
    if (!this.#hasBegun) return;
    this.#stopping = backendFailed('this scheduler is stopping');
    this.abort.abort(this.#stopping);
  }
}
