// Vocabulary of hosted inference, shared by the catalog, the /v1 surface and the credit ledger.
import type { MODEL_TYPES } from '#shared/domain/models.ts';
import type { QueueName, TokenId, WorkspaceId } from '#shared/domain/ids.ts';

/** Sort of work that a model does. Source: reference of the inference API, §3. */
export type ModelType = (typeof MODEL_TYPES)[number];

/** Prices in integer micro-units of the installation's currency: for a million tokens, and for a request. */
export interface Prices {
  readonly promptMicrosPerMillion: number;
  readonly completionMicrosPerMillion: number;
  readonly requestMicros: number;
}

/** Tokens of a request, as the model server reported them. */
export interface TokenUsage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** The server reported none: they were estimated from characters. */
  readonly estimated: boolean;
}

/** How a request ended, for the ledger. `lost`: the replica that served it died; usage is the last that it noted. */
export type ChargeStatus = 'complete' | 'aborted' | 'failed' | 'lost';

/**
 * Queue of the tasks that are calls of models answered later. It is no queue of Redis: the rows of deferred_calls are.
 */
export const DEFERRED_CALLS_QUEUE = 'deferred-calls' as QueueName;

/** A request that is about to reach a model. */
export interface ChargeRequest {
  /** `req_<hex>`; the ledger has a single row for each. */
  readonly requestId: string;
  readonly workspaceId: WorkspaceId;
  readonly tokenId: TokenId;
  /** Id of the catalog that the caller named. */
  readonly model: string;
  readonly type: ModelType;
  readonly stream: boolean;
  readonly prices: Prices;
  /** Whether the workspace's credits must cover it: false for free models and for models of the workspace itself. */
  readonly isCharged: boolean;
  /** Largest usage that the request can have. */
  readonly most: Pick<TokenUsage, 'promptTokens' | 'completionTokens'>;
}

export type Admitted =
  | { readonly kind: 'admitted' }
  | {
      readonly kind: 'refused';
      readonly code: 'insufficient_credits' | 'spend_limit_reached';
      readonly message: string;
    };

/** Reserves, notes and settles what requests cost. */
export interface Charging {
  /** Holds the largest cost. Nothing has reached a model yet. */
  reserve(request: ChargeRequest): Promise<Admitted>;
  /** Notes tokens of a stream so far, for the case that this replica dies. Cheap; never waits. */
  progress(requestId: string, usage: TokenUsage): void;
  /** Writes the ledger row, durable when it resolves. Once for each request; a repetition changes nothing. */
  settle(requestId: string, usage: TokenUsage, status: ChargeStatus): Promise<void>;
  /** Gives the hold back without a row: nothing reached a model. */
  release(requestId: string): Promise<void>;
}

/** Holds of requests that are accepted by one replica and carried out later, perhaps by another. */
export interface LastingHolds {
  /** Leaves a hold to whoever keeps or adopts it. It lapses unless that happens soon. */
  handOver(requestId: string): void;
  /** Renews holds that were handed over, and makes those again that have lapsed. */
  keep(requests: readonly ChargeRequest[]): Promise<void>;
  /** Takes a hold over, also one that has lapsed: from here on, `settle` and `release` end it. */
  adopt(request: ChargeRequest): Promise<void>;
  /** Ends a hold that was handed over. Nothing reached a model, or the ledger has what did. */
  giveBack(request: ChargeRequest): Promise<void>;
}
