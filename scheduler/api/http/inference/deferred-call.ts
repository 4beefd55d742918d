// A call of a model whose answer its caller reads later as the result of a task. Any replica carries it out, perhaps
// not the one that accepted it, and not the first that tried.
// Invariants: all tries of a call have one request id, so the ledger has one row of it. A try that waits again leaves
// the hold of its cost to the next one.
import type { LastingHolds } from '../../../domain/inference.ts';
import type { DeferredCallRow } from '../../../stores/store/queries/deferred-calls.ts';
import type { RunDeferred, TryGivenUp, TryOutcome } from '../../../tasks/deferred-calls/executor.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { InferenceRates } from '../../../workspaces/identity/inference-rates.ts';
import type { ModelCatalog } from '../../../workspaces/models/catalog.ts';
import { ModelCall, mostTokensOf } from './call.ts';
import type { ExchangeParts } from './call.ts';
import { checkRequest } from './checked.ts';
import type { Checked } from './checked.ts';
import { errorObject, inferenceError, unknownModel } from './errors.ts';
import type { InferenceError } from './errors.ts';
import { unavailable } from './failures.ts';
import { readBody } from './json-body.ts';
import { classOf } from './metrics.ts';
import type { Route } from './prepared.ts';

/** Longest wait for a model's answer: its callers wait for nothing. */
export const DEFERRED_ANSWER_MS = 3_600_000;

/** Request of a call, as its row has it. */
export interface DeferredRequest {
  readonly route: Route;
  /** Id of the catalog. */
  readonly model: string;
  readonly caller: Caller;
  readonly affinity?: string;
}

export interface DeferredRunParts extends ExchangeParts {
  readonly catalog: Pick<ModelCatalog, 'find'>;
  readonly holds: Pick<LastingHolds, 'handOver' | 'adopt' | 'giveBack'>;
  readonly correctRate: InferenceRates['correct'];
}

/** Carries out tries. */
export function deferredRunner(parts: DeferredRunParts): RunDeferred {
  return async (row, body, signal) => {
    try {
      const request = row.request as DeferredRequest;
      const model = await parts.catalog.find(row.workspaceId, request.model);
      if (model === undefined) throw unknownModel(request.model);
      if (!model.active) throw unavailable(`the model ${model.name} is switched off`);
      const checked = checkRequest(request.route, readBody(Buffer.from(body, 'utf8')), model, false);
      return await new DeferredCall(checked, row, request, parts).run(signal);
    } catch (error) {
      const outcome = outcomeOf(inferenceError(error), row.requestId);
      if (outcome.kind === 'failed') await parts.holds.giveBack(row.charge).catch(() => undefined);
      return outcome;
    }
  };
}

/** A failed try: final, unless no backend has done anything. */
export function outcomeOf(error: InferenceError, requestId: string): TryOutcome {
  if (error.status === 429 || error.status === 503 || error.isUnserved) return { kind: 'later', reason: error.code };
  const text = JSON.stringify({ error: errorObject(error, requestId) });
  return { kind: 'failed', status: error.status === 504 ? 'TIMEOUT' : 'ERROR', reason: error.code, text };
}

class DeferredCall extends ModelCall {
  readonly #checked: Checked;
  readonly #row: DeferredCallRow;
  readonly #parts: DeferredRunParts;
  #text: string | undefined;

  constructor(checked: Checked, row: DeferredCallRow, request: DeferredRequest, parts: DeferredRunParts) {
    super(
      checked.prepared,
      {
        requestId: row.requestId,
        caller: request.caller,
        affinity: request.affinity,
        waitMs: DEFERRED_ANSWER_MS,
        release: () => undefined,
      },
      parts,
    );
    this.#checked = checked;
    this.#row = row;
    this.#parts = parts;
  }

  get hasLeft(): boolean {
    return false;
  }

  answer(_headers: Readonly<Record<string, string>>, text: string): Promise<void> {
    this.#text = text;
    return Promise.resolve();
  }

  /** Never throws, once the cost is held. */
  async run(signal: AbortSignal): Promise<TryOutcome> {
    const { charge, isCharged, workspaceId } = this.#row;
    const giveUp = (): void => this.abort.abort(signal.reason);
    await this.#parts.holds.adopt(charge);
    this.isHeld = true;
    const most = mostTokensOf(this.prepared);
    this.tokensUsed = (tokens) => void this.#parts.correctRate(workspaceId, most, tokens);
    signal.addEventListener('abort', giveUp, { once: true });
    if (signal.aborted) giveUp();
    this.boundWait();
    let status = 200;
    try {
      await this.#checked.serveWhole(this);
      return { kind: 'done', text: this.#text ?? 'null' };
    } catch (error) {
      const told = inferenceError(error);
      status = told.status;
      const outcome = outcomeOf(told, this.requestId);
      const why = signal.aborted ? (signal.reason as TryGivenUp).why : undefined;
      const comesBack = why === undefined ? outcome.kind === 'later' : why === 'stopping';
      if (comesBack && isCharged && !this.isSettled) this.#parts.holds.handOver(this.requestId);
      else if (comesBack && !this.isSettled) await this.#parts.charging.release(this.requestId);
      else await this.releaseHold();
      if (status === 500 && why === undefined)
        this.parts.log.error({ err: error, requestId: this.requestId }, 'a call that is answered later failed');
      return outcome;
    } finally {
      this.answered();
      this.giveBackAnswer();
      signal.removeEventListener('abort', giveUp);
      this.parts.metrics.requests.inc({ type: this.prepared.model.type, status: classOf(status) });
      this.tellRoute(status);
    }
  }
}
