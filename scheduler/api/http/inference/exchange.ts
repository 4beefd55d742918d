// A call of a model from its checked request to its last byte: credits are held, a backend is asked, the answer
// passes, and what it cost is written.
// Invariants: nothing reaches a model before its cost is held. The ledger has the usage before the caller is told it. A
// caller who leaves ends the backend's request at once. A stream that broke off ends with an error frame, and without
// the frame that says it is whole.
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Log } from '#shared/log.ts';
import type { ChargeStatus, Charging, TokenUsage } from '../../../domain/inference.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { OpenCall, OpenCalls } from '../streams/open-calls.ts';
import type { BodyBudget } from '../body-budget.ts';
import { headersOf } from '../streams/common.ts';
import type { Asked, Backends } from './backends.ts';
import { AFFINITY_HEADER } from './backends.ts';
import { InferenceError, errorObject, inferenceError, sendError } from './errors.ts';
import { backendFailed, timedOut, unavailable } from './failures.ts';
import type { JsonObject } from './fields.ts';
import { classOf } from './metrics.ts';
import type { InferenceMetrics } from './metrics.ts';
import { LEFT_STATUS } from './route-event.ts';
import type { RoutedCall } from './route-event.ts';
import type { InferenceRates } from '../../../workspaces/identity/inference-rates.ts';
import type { CallFacts, Prepared } from './prepared.ts';
import { estimatedPrompt } from './prepared.ts';
import type { ClaimedKey } from './keyed-call.ts';
import { readJson, tooManyAnswers } from './whole-answer.ts';

export interface ExchangeParts {
  readonly backends: Backends;
  readonly charging: Charging;
  readonly rates: Pick<InferenceRates, 'take'>;
  readonly openCalls: OpenCalls;
  /** Bytes of answers that are held to their end. */
  readonly answers: BodyBudget;
  readonly metrics: InferenceMetrics;
  /** Told of each call that a backend was asked for. */
  readonly routed: (call: RoutedCall) => void;
  /** Absent: {@link EXCHANGE_TIMES}. */
  readonly times?: ExchangeTimes;
  readonly log: Log;
  readonly nowMs: () => number;
}

/** A caller who reads nothing of an answer, or of a waiting frame, for so long counts as gone. */
export const UNREAD_MS = 300_000;

/** Waits of a call, in milliseconds. */
export interface ExchangeTimes {
  /** Until a backend's answer: below the clients' own ten minutes. */
  readonly waitMs: number;
  /** Until a stream begins without the backend's status: a failure before that has a status of its own. */
  readonly holdMs: number;
  /** Between two comments of a stream that waits. */
  readonly pingMs: number;
}
export const EXCHANGE_TIMES: ExchangeTimes = { waitMs: 570_000, holdMs: 30_000, pingMs: 15_000 };

export class Exchange implements OpenCall {
  readonly protocol = 'http';
  readonly requestId: string;
  readonly prepared: CallFacts;
  readonly caller: Caller;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly parts: ExchangeParts;
  /** Idempotency key of the call; undefined: none. */
  readonly key: ClaimedKey | undefined;
  readonly times: ExchangeTimes;
  readonly #abort = new AbortController();
  readonly #release: () => void;
  #bodyFor: Prepared['bodyFor'] | undefined;
  #late: NodeJS.Timeout | undefined;
  /** The backend that was asked first; undefined: none was. */
  #asked: Pick<Asked, 'route' | 'queueWaitMs'> | 'nothing came' | undefined;
  #firstMs: number | undefined;
  #usage: TokenUsage | undefined;
  #answerBytes = 0;
  readonly #sinceMs: number;
  #hasBegun = false;
  #isReserved = false;
  #tokensUsed: ((tokens: number) => void) | undefined;
  #isSettled = false;
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
    const { bodyFor, ...facts } = prepared;
    this.prepared = facts;
    this.#bodyFor = bodyFor;
    this.#release = to.release;
    this.times = parts.times ?? EXCHANGE_TIMES;
    this.requestId = to.requestId;
    this.caller = to.caller;
    this.request = to.request;
    this.reply = to.reply;
    this.key = to.key;
    this.parts = parts;
    this.#sinceMs = parts.nowMs();
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  get hasLeft(): boolean {
    return this.#hasLeft;
  }

  /** Whether the caller's workspace pays: not for free models, and not for its own. */
  get isCharged(): boolean {
    const { prices, workspaceId } = this.prepared.model;
    const isFree = prices.promptMicrosPerMillion + prices.completionMicrosPerMillion + prices.requestMicros === 0;
    return !isFree && this.caller.workspaceId !== workspaceId;
  }

  /** Milliseconds since the request came. */
  get tookMs(): number {
    return Math.max(0, Math.round(this.parts.nowMs() - this.#sinceMs));
  }

  /** Runs the call. Failures are answered here, and settled by what was produced. */
  async run(serve: (exchange: Exchange) => Promise<void>): Promise<void> {
    const { raw } = this.reply;
    const closed = this.parts.openCalls.add(this);
    const onClose = (): void => {
      if (raw.writableFinished) return;
      this.#hasLeft = true;
      this.#abort.abort(new Error('the caller left'));
    };
    raw.once('close', onClose);
    if (raw.destroyed) onClose();
    this.#late = setTimeout(() => {
      this.#abort.abort(timedOut('the model did not answer in time'));
    }, this.times.waitMs).unref();
    let status = 200;
    try {
      await this.#reserve();
      await serve(this);
    } catch (error) {
      status = await this.#failed(error);
    } finally {
      this.answered();
      raw.off('close', onClose);
      if (raw.destroyed || this.#answerBytes === 0) this.#giveBackAnswer();
      else this.#untilRead();
      closed();
      this.parts.metrics.requests.inc({
        type: this.prepared.model.type,
        status: this.#hasLeft ? 'left' : classOf(status),
      });
      this.#tell(this.#hasLeft ? LEFT_STATUS : status);
    }
  }

  /** Counts the answer until its caller has read it. A caller who reads nothing for long is cut off. */
  #untilRead(): void {
    const { raw } = this.reply;
    const unread = setTimeout(() => raw.destroy(), UNREAD_MS).unref();
    raw.once('close', () => {
      clearTimeout(unread);
      this.#giveBackAnswer();
    });
  }

  #tell(status: number): void {
    if (this.#asked === undefined) return;
    this.parts.routed({
      requestId: this.requestId,
      workspaceId: this.caller.workspaceId,
      model: this.prepared.model.name,
      path: this.prepared.path,
      stream: this.prepared.stream,
      status,
      usage: this.#usage,
      route: this.#asked === 'nothing came' ? undefined : this.#asked.route,
      queueWaitMs: this.#asked === 'nothing came' ? undefined : this.#asked.queueWaitMs,
      firstResponseMs: this.#firstMs,
      durationMs: this.tookMs,
    });
  }

  async #reserve(): Promise<void> {
    const { prepared, caller, parts } = this;
    const { model } = prepared;
    const most = {
      promptTokens: estimatedPrompt(prepared),
      completionTokens: prepared.mostCompletionTokens,
    };
    await this.#takeRate(most.promptTokens + most.completionTokens);
    const admitted = await parts.charging.reserve({
      requestId: this.requestId,
      workspaceId: caller.workspaceId,
      tokenId: caller.tokenId,
      model: model.name,
      type: model.type,
      stream: prepared.stream,
      prices: model.prices,
      isCharged: this.isCharged,
      most,
    });
    if (admitted.kind === 'refused') throw new InferenceError(402, admitted.code, admitted.message);
    this.#isReserved = true;
  }

  /** Takes the call from the rates of its workspace, which every answer tells. @throws InferenceError */
  async #takeRate(tokens: number): Promise<void> {
    const rate = await this.parts.rates.take(this.caller.workspaceId, tokens);
    this.reply.headers(rate.headers);
    if (rate.kind === 'taken') {
      this.#tokensUsed = rate.used;
      return;
    }
    const headers = {
      'retry-after': String(Math.ceil(rate.retryAfterMs / 1000)),
      'retry-after-ms': String(rate.retryAfterMs),
    };
    throw new InferenceError(429, 'rate_limit_exceeded', rate.message, { type: rate.which, headers });
  }

  /**
   * Asks the backends of the model with the body of the request, once.
   * @throws InferenceError
   */
  async ask(): Promise<Asked> {
    if (this.#bodyFor === undefined) throw new Error('the body of the request was handed on');
    const asked = await this.askWith(this.#bodyFor, this.signal);
    this.#handedOn();
    return asked;
  }

  /** Asks the backends of the model with a body of its own. @throws InferenceError */
  async askWith(body: (servedName: string) => JsonObject, signal: AbortSignal): Promise<Asked> {
    const header = this.request.headers[AFFINITY_HEADER];
    const affinity = typeof header === 'string' ? header : undefined;
    this.#asked ??= 'nothing came';
    const asked = await this.parts.backends.ask(this.prepared, body, this.caller, affinity, signal);
    if (this.#asked === 'nothing came') this.#asked = asked;
    return asked;
  }

  /** A backend has the body: nothing here keeps it. */
  #handedOn(): void {
    this.#bodyFor = undefined;
    this.#release();
  }

  /** The backend's answer has begun: no wait bounds the call any more. */
  answered(): void {
    clearTimeout(this.#late);
    this.#handedOn();
  }

  /**
   * Reads an answer that is one JSON object, within its bounds. Its bytes count until the response is over.
   * @throws InferenceError `backend_error`
   */
  async readJson(asked: Asked): Promise<JsonObject> {
    const { value, bytes } = await readJson(asked.body, this.parts.answers, this.caller.workspaceId);
    this.#answerBytes += bytes;
    return value;
  }

  /** Reads a part of an answer, of which {@link hold} counts what is kept. @throws InferenceError */
  async readPart(asked: Asked): Promise<JsonObject> {
    const { value, bytes } = await readJson(asked.body, this.parts.answers, this.caller.workspaceId);
    this.parts.answers.giveBack(this.caller.workspaceId, bytes);
    return value;
  }

  /** Counts bytes of the answer until the response is over. @throws InferenceError `model_overloaded` */
  hold(bytes: number): void {
    if (!this.parts.answers.take(this.caller.workspaceId, bytes)) throw tooManyAnswers();
    this.#answerBytes += bytes;
  }

  #giveBackAnswer(): void {
    this.parts.answers.giveBack(this.caller.workspaceId, this.#answerBytes);
    this.#answerBytes = 0;
  }

  firstToken(): void {
    this.#firstMs = this.tookMs;
    this.parts.metrics.firstToken.observe({ type: this.prepared.model.type }, this.tookMs / 1000);
  }

  /** The head of the answer is out, or is about to be. */
  begun(): void {
    this.#hasBegun = true;
  }

  progress(usage: TokenUsage): void {
    if (this.#isReserved) this.parts.charging.progress(this.requestId, usage);
  }

  /** Writes what the call cost, before its caller is told. */
  async settle(usage: TokenUsage, status: ChargeStatus): Promise<void> {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#usage = usage;
    this.#tokensUsed?.(usage.promptTokens + usage.completionTokens);
    this.parts.metrics.tokens.inc({ direction: 'in' }, usage.promptTokens);
    this.parts.metrics.tokens.inc({ direction: 'out' }, usage.completionTokens);
    if (this.#isReserved) await this.parts.charging.settle(this.requestId, usage, status);
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
    if (!this.#isSettled) this.#tokensUsed?.(0);
    const { reply, parts, requestId } = this;
    if (!this.#isSettled && this.#isReserved) {
      this.#isSettled = true;
      await parts.charging.release(requestId).catch((cause: unknown) => {
        parts.log.warn({ err: cause, requestId }, 'the hold of a call could not be given back');
      });
    }
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
    this.#abort.abort(this.#stopping);
  }

  cut(): void {
    if (!this.#hasBegun) return;
    this.#stopping = backendFailed('this scheduler is stopping');
    this.#abort.abort(this.#stopping);
  }
}
