import type { PullImageResponse__Output } from '#shared/protocol/generated/messages.ts';
import type { Log } from '#shared/log.ts';
import type { PullPermit } from './turns.ts';

/** A question to the scheduler over the link. */
export interface PullQuestion {
  readonly image: string;
  /** Gives the place back. */
  readonly done?: boolean;
  /** The workspace whose credentials are needed; empty: the operator's. */
  readonly workspaceId?: string;
  /** Whether the machine has the image now; with `done`. */
  readonly pulled?: boolean;
  /** Whether the machine asks again soon; with `done`. */
  readonly again?: boolean;
  /** Credentials only, without a place. */
  readonly check?: boolean;
  /** How long the scheduler may hold the question until it is this machine's turn. */
  readonly maxWaitMs?: number;
  /** Whether the pull is under way. */
  readonly pulling?: boolean;
  /** Whether the machine waited in the line before. */
  readonly hasWaited?: boolean;
}
export type AskToPull = (question: PullQuestion) => Promise<PullImageResponse__Output>;

/** How long a scheduler may hold the question of a machine whose turn it is not. */
export const HELD_MS = 20_000;

/**
 * Asks the scheduler whether a pull may begin, and with which credentials. Without an
 * answer the pull begins without credentials: the limit spares registries and protects nothing.
 */
export async function askPermit(ask: AskToPull, question: PullQuestion, log: Log): Promise<PullPermit> {
  try {
    const { auth, ...answer } = await ask(question);
    return { ...answer, auth: auth ?? undefined };
  } catch (error) {
    log.info(
      { err: error, image: question.image },
      'the scheduler could not be asked about a pull; it begins without credentials',
    );
    return { waitMs: 0, auth: undefined, unasked: true };
  }
}
