import type { PullImageResponse__Output } from '#shared/protocol/generated/messages.ts';
import type { Log } from '#shared/log.ts';
import type { PullPermit } from './images.ts';

/** Asks the scheduler over the link; `done` gives the place back. */
export type AskToPull = (image: string, done: boolean) => Promise<PullImageResponse__Output>;

/**
 * The scheduler's word on a pull: whether it may begin, and with which credentials. Without a link, or with a scheduler that knows no such question, it begins without
 * any: the limit spares registries, it guards nothing.
 */
export async function askPermit(ask: AskToPull, image: string, log: Log): Promise<PullPermit> {
  try {
    const { waitMs, auth } = await ask(image, false);
    return { waitMs, auth: auth ?? undefined };
  } catch (error) {
    log.info({ err: error, image }, 'the scheduler could not be asked about a pull; it begins without credentials');
    return { waitMs: 0, auth: undefined, unasked: true };
  }
}
