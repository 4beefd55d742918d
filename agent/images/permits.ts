import type { PullImageResponse__Output } from '#shared/protocol/generated/messages.ts';
import type { Log } from '#shared/log.ts';
import type { PullPermit } from './images.ts';

/** A question to the scheduler over the link. */
export interface PullQuestion {
  readonly image: string;
  /** Gives the place back. */
  readonly done?: boolean;
  /** The workspace whose credentials are needed; empty: the operator's. */
  readonly workspaceId?: string;
  /** Credentials only, without a place. */
  readonly check?: boolean;
}
export type AskToPull = (question: PullQuestion) => Promise<PullImageResponse__Output>;

/**
 * Asks the scheduler whether a pull may begin, and with which credentials. Without a link, or with a scheduler that
 * does not know the question, the pull begins without credentials: the limit spares registries and protects nothing.
 */
export async function askPermit(ask: AskToPull, question: PullQuestion, log: Log): Promise<PullPermit> {
  try {
    const { waitMs, auth, builtFrom } = await ask(question);
    return { waitMs, auth: auth ?? undefined, builtFrom };
  } catch (error) {
    log.info(
      { err: error, image: question.image },
      'the scheduler could not be asked about a pull; it begins without credentials',
    );
    return { waitMs: 0, auth: undefined, unasked: true };
  }
}
