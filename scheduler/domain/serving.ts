// Facts about model servers: a stub's `serving` settings, and the share of a container that a call to a model takes.
// Pure. Source: reference of the inference API, §9; decision 0250.

/** A stub whose program speaks the chat-completions dialect. */
export interface ServingConfig {
  readonly protocol: 'openai';
  readonly llm: LlmConfig;
}

export interface LlmConfig {
  /** Names, empty when not given. They inform; nothing is decided by them. */
  readonly modelId: string;
  readonly engine: string;
  readonly servedModelName: string;
  readonly tokenizer: string;
  readonly sloTier: string;
  /** Tokens of prompt and answer that one call may have. */
  readonly contextLength: number;
  /** Tokens that the cache of one container holds. Absent: `contextLength` for each of its tasks. */
  readonly cacheTokens?: number;
  /** Path of the engine's metrics, on the pod's first port. */
  readonly metricsPath: string;
}

export const DEFAULT_CONTEXT_LENGTH = 4096;
export const DEFAULT_METRICS_PATH = '/metrics';

/** Reservation and preference of one call to a model. */
export interface ServingCall {
  /** Estimated tokens of prompt and answer. */
  readonly tokens: number;
  /** Tokens that weigh as much as one stream in the load of a container. */
  readonly tokensPerStream: number;
  /** Hash of the call's conversation: the container that served it last is preferred. Absent: none. */
  readonly prefers?: string;
}

/** Estimate where no tokenizer is at hand. Source: reference of the inference API, §4.3. */
export const tokensOf = (characters: number): number => Math.ceil(characters / 4);

/** Tokens that one container holds. */
export const tokensPerContainer = (
  { contextLength, cacheTokens }: Pick<LlmConfig, 'contextLength' | 'cacheTokens'>,
  tasksPerContainer: number,
): number => cacheTokens ?? contextLength * Math.max(1, tasksPerContainer);

/** Even share of one stream in the tokens that a container holds. */
export const tokensPerStream = (
  llm: Pick<LlmConfig, 'contextLength' | 'cacheTokens'>,
  tasksPerContainer: number,
): number => Math.max(1, Math.floor(tokensPerContainer(llm, tasksPerContainer) / Math.max(1, tasksPerContainer)));

/** Requests inside an engine, as its metrics tell. */
export interface EngineLoad {
  readonly running: number;
  /** Requests that waited at two readings in a row. */
  readonly waiting: number;
}
