// A checked request on its way to a backend: the form that all routes of models bring theirs into.
import { tokensOf } from '../../../domain/serving.ts';
import type { ModelRow } from '../../../stores/store/queries/models.ts';
import type { JsonDocument } from './fields.ts';

export type Route = 'chat' | 'completion' | 'embedding' | 'invoke';

export interface Prepared {
  readonly route: Route;
  readonly model: ModelRow;
  /** Path of the backend below `/v1`, such as `/chat/completions`. */
  readonly path: string;
  /** Body for a backend that serves the model under that name. */
  readonly bodyFor: (servedName: string) => JsonDocument;
  /** The caller wants a stream. */
  readonly stream: boolean;
  /** The caller wants the usage in its stream. */
  readonly includeUsage: boolean;
  /** Characters of the prompt, for estimates. */
  readonly promptCharacters: number;
  /** Prompt tokens, where they are counted already: token ids. */
  readonly promptTokens: number;
  /** Most tokens that may come back. */
  readonly mostCompletionTokens: number;
}

/** A request without its body: the facts that are kept until the end of the call. */
export type CallFacts = Omit<Prepared, 'bodyFor'>;

/** Tokens of a prompt, where no server has counted them. */
export const estimatedPrompt = ({ promptCharacters, promptTokens }: CallFacts): number =>
  tokensOf(promptCharacters) + promptTokens;

/** Most tokens of a call that are counted. */
const MOST_TOKENS = 1_000_000_000;

/** A number of tokens as a backend reported it; undefined: it reported none that can be one. */
export const reportedTokens = (value: unknown): number | undefined =>
  typeof value === 'number' && value >= 0 ? Math.min(MOST_TOKENS, Math.ceil(value)) : undefined;
