import type { PullImageResponse__Output } from '#shared/protocol/generated/messages.ts';
import type { Log } from '#shared/log.ts';
import type { PullPermit } from './images.ts';

/** Asked of the scheduler over the link. */
export interface PullQuestion {
  readonly image: string;
  /** Gives the place back. */
  readonly done?: boolean;
  /** Whose credentials; empty: the operator's. */
  readonly workspaceId?: string;
  /** Credentials alone, no place. */
  readonly check?: boolean;
}
export type AskToPull = (question: PullQuestion) => Promise<PullImageResponse__Output>;

/**
 * The scheduler's word on a pull: whether it may begin, and with which credentials. Without a link, or with a scheduler that knows no such question, it begins without
 * any: the limit spares registries, it guards nothing.
 */
export async function askPermit(ask: AskToPull, question: PullQuestion, log: Log): Promise<PullPermit> {
  try {
    const { waitMs, auth } = await ask(question);
    return { waitMs, auth: auth ?? undefined };
  } catch (error) {
    log.info(
      { err: error, image: question.image },
      'the scheduler could not be asked about a pull; it begins without credentials',
    );
    return { waitMs: 0, auth: undefined, unasked: true };
  }
}
