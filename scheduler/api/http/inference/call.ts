// A call of a model, whoever reads its answer: a backend is asked, its answer is read within bounds, and its cost is
// written. Exchange answers a connection, and DeferredCall keeps the answer for later.
// Invariants: nothing reaches a model before its cost is held. The ledger has the usage before the caller is told it.
import type { Log } from '#shared/log.ts';
import type { ChargeRequest, ChargeStatus, Charging, TokenUsage } from '../../../domain/inference.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { InferenceRates } from '../../../workspaces/identity/inference-rates.ts';
import type { BodyBudget } from '../body-budget.ts';
import type { OpenCalls } from '../streams/open-calls.ts';
import type { Asked, Backends } from './backends.ts';
import { timedOut } from './failures.ts';
import type { JsonDocument } from './fields.ts';
import type { InferenceMetrics } from './metrics.ts';
import type { CallFacts, Prepared } from './prepared.ts';
import { estimatedPrompt } from './prepared.ts';
import type { RoutedCall } from './route-event.ts';
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

/** A call on its way to a backend. */
export interface CallStart {
  readonly requestId: string;
  readonly caller: Caller;
  /** Header with which the caller names its conversation. */
  readonly affinity: string | undefined;
  /** Until a backend's answer, in milliseconds. */
  readonly waitMs: number;
  /** A backend has the body: nothing counts it any more. */
  readonly release: () => void;
}

/** Whether a workspace pays for a model: not for free ones, and not for its own. */
export function isChargedFor({ model }: CallFacts, caller: Caller): boolean {
  const { prices, workspaceId } = model;
  const isFree = prices.promptMicrosPerMillion + prices.completionMicrosPerMillion + prices.requestMicros === 0;
  return !isFree && caller.workspaceId !== workspaceId;
}

/** Largest number of tokens of a call. */
export const mostTokensOf = (facts: CallFacts): number => estimatedPrompt(facts) + facts.mostCompletionTokens;

/** A call as the ledger is asked to hold it. */
export const chargeRequestOf = (facts: CallFacts, requestId: string, caller: Caller): ChargeRequest => ({
  requestId,
  workspaceId: caller.workspaceId,
  tokenId: caller.tokenId,
  model: facts.model.name,
  type: facts.model.type,
  stream: facts.stream,
  prices: facts.model.prices,
  isCharged: isChargedFor(facts, caller),
  most: { promptTokens: estimatedPrompt(facts), completionTokens: facts.mostCompletionTokens },
});

export abstract class ModelCall {
  readonly requestId: string;
  readonly prepared: CallFacts;
  readonly caller: Caller;
  readonly parts: ExchangeParts;
  readonly times: ExchangeTimes;
  /** Ends the call for its backend. */
  protected readonly abort = new AbortController();
  /** The cost of the call is held, and this call ends the hold. */
  protected isHeld = false;
  /** Told the tokens that were used; undefined: no rate counts them. */
  protected tokensUsed: ((tokens: number) => void) | undefined;
  readonly #affinity: string | undefined;
  readonly #waitMs: number;
  readonly #release: () => void;
  readonly #sinceMs: number;
  #bodyFor: Prepared['bodyFor'] | undefined;
  #late: NodeJS.Timeout | undefined;
  /** The backend that was asked first; undefined: none was. */
  #asked: Pick<Asked, 'route' | 'queueWaitMs'> | 'nothing came' | undefined;
  #firstMs: number | undefined;
  #usage: TokenUsage | undefined;
  #answerBytes = 0;
  #isSettled = false;

  constructor(prepared: Prepared, start: CallStart, parts: ExchangeParts) {
    const { bodyFor, ...facts } = prepared;
    this.prepared = facts;
    this.#bodyFor = bodyFor;
    this.requestId = start.requestId;
    this.caller = start.caller;
    this.#affinity = start.affinity;
    this.#waitMs = start.waitMs;
    this.#release = start.release;
    this.parts = parts;
    this.times = parts.times ?? EXCHANGE_TIMES;
    this.#sinceMs = parts.nowMs();
  }

  /** The caller is gone: what was done is charged, and nobody reads it now. */
  abstract get hasLeft(): boolean;

  /** Gives the whole answer to its caller. */
  abstract answer(headers: Readonly<Record<string, string>>, text: string): Promise<void>;

  get signal(): AbortSignal {
    return this.abort.signal;
  }

  get isCharged(): boolean {
    return isChargedFor(this.prepared, this.caller);
  }

  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Milliseconds since the request came. */
  get tookMs(): number {
    return Math.max(0, Math.round(this.parts.nowMs() - this.#sinceMs));
  }

  get answerBytes(): number {
    return this.#answerBytes;
  }

  /** Bounds the wait for a backend's answer. */
  protected boundWait(): void {
    this.#late = setTimeout(() => {
      this.abort.abort(timedOut('the model did not answer in time'));
    }, this.#waitMs).unref();
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
  async askWith(body: (servedName: string) => JsonDocument, signal: AbortSignal): Promise<Asked> {
    this.#asked ??= 'nothing came';
    const { prepared, caller } = this;
    const asked = await this.parts.backends.ask(prepared, body, caller, this.#affinity, this.#waitMs, signal);
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
  async readJson(asked: Asked): Promise<JsonDocument> {
    const { document, bytes } = await readJson(asked.body, this.parts.answers, this.caller.workspaceId);
    this.#answerBytes += bytes;
    return document;
  }

  /** Reads a part of an answer, of which {@link hold} counts what is kept. @throws InferenceError */
  async readPart(asked: Asked): Promise<JsonDocument> {
    const { document, bytes } = await readJson(asked.body, this.parts.answers, this.caller.workspaceId);
    this.parts.answers.giveBack(this.caller.workspaceId, bytes);
    return document;
  }

  /** Counts bytes of the answer until the response is over. @throws InferenceError `model_overloaded` */
  hold(bytes: number): void {
    if (!this.parts.answers.take(this.caller.workspaceId, bytes)) throw tooManyAnswers();
    this.#answerBytes += bytes;
  }

  protected giveBackAnswer(): void {
    this.parts.answers.giveBack(this.caller.workspaceId, this.#answerBytes);
    this.#answerBytes = 0;
  }

  firstToken(): void {
    this.#firstMs = this.tookMs;
    this.parts.metrics.firstToken.observe({ type: this.prepared.model.type }, this.tookMs / 1000);
  }

  progress(usage: TokenUsage): void {
    if (this.isHeld) this.parts.charging.progress(this.requestId, usage);
  }

  /** Writes what the call cost, before its caller is told. */
  async settle(usage: TokenUsage, status: ChargeStatus): Promise<void> {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#usage = usage;
    this.tokensUsed?.(usage.promptTokens + usage.completionTokens);
    this.parts.metrics.tokens.inc({ direction: 'in' }, usage.promptTokens);
    this.parts.metrics.tokens.inc({ direction: 'out' }, usage.completionTokens);
    if (this.isHeld) await this.parts.charging.settle(this.requestId, usage, status);
  }

  /** Nothing was produced that costs: gives the hold back, unless the call is settled. Never throws. */
  protected async releaseHold(): Promise<void> {
    if (this.#isSettled) return;
    this.tokensUsed?.(0);
    if (!this.isHeld) return;
    this.#isSettled = true;
    const { requestId, parts } = this;
    await parts.charging.release(requestId).catch((cause: unknown) => {
      parts.log.warn({ err: cause, requestId }, 'the hold of a call could not be given back');
    });
  }

  /** Tells how a call ended that reached a backend. */
  protected tellRoute(status: number): void {
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
}
