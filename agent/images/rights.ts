/**
 * Decides which workspaces may start an image here. An image pulled with credentials lies on a machine that workspaces
 * share, so each workspace proves by its own credentials that it could pull it. Must stay true: an image that this
 * agent pulled with credentials starts for no workspace that its registry refused, or that the registry was never asked
 * about.
 */
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerRuntime, ImageFacts } from '../containers/runtime.ts';
import { classifyPull, imageFailure, isTransient, PULL_CURES } from './failures.ts';
import type { ImageLedger } from './ledger.ts';
import type { PullPermit } from './turns.ts';

/** Lifetime of a registry's answer. */
const RIGHT_MS = 5 * 60_000;
const ASK_REGISTRY_MS = 8_000;

export interface ImageRightsParts {
  readonly runtime: Pick<ContainerRuntime, 'registryDigest'>;
  readonly ledger: Pick<ImageLedger, 'allowedPrivately' | 'allowed'>;
  /** Credentials of that workspace for that image, without a place in the pull limit. */
  readonly credentials: (reference: string, workspaceId: string) => Promise<PullPermit>;
  readonly nowMs: () => number;
  readonly log: Log;
}

export class ImageRights {
  readonly #parts: ImageRightsParts;
  /** Questions in progress, by workspace and image. */
  readonly #asking = new Map<string, Promise<void>>();

  constructor(parts: ImageRightsParts) {
    this.#parts = parts;
  }

  /**
   * Returns when the workspace may use the image that is here.
   * @throws AppError `image_error` naming the image and what to do; `registry_busy` when the registry cannot say
   */
  async require(reference: string, facts: ImageFacts, workspaceId: string): Promise<void> {
    const allowed = this.#parts.ledger.allowedPrivately(reference, facts.id);
    if (allowed === undefined) return;
    const allowedAtMs = allowed[workspaceId];
    const ageMs = this.#parts.nowMs() - (allowedAtMs ?? 0);
    if (allowedAtMs !== undefined && ageMs >= 0 && ageMs < RIGHT_MS) return;
    const key = `${workspaceId} ${reference}`;
    const asking =
      this.#asking.get(key) ??
      this.#ask(reference, workspaceId, allowedAtMs !== undefined)
        .then(() => this.#parts.ledger.allowed(reference, workspaceId, this.#parts.nowMs()))
        .finally(() => this.#asking.delete(key));
    this.#asking.set(key, asking);
    await asking;
  }

  /** Asks the registry. When it cannot be asked, a workspace keeps a right it had and gains none. */
  async #ask(reference: string, workspaceId: string, wasAllowed: boolean): Promise<void> {
    const { runtime, credentials, log } = this.#parts;
    const { auth, unasked = false } = await credentials(reference, workspaceId);
    try {
      await runtime.registryDigest(reference, auth, ASK_REGISTRY_MS);
    } catch (error) {
      const failure = classifyPull(messageOf(error));
      const isUnknown = isTransient(failure) || (unasked && failure === 'unauthorized');
      log.info(
        { err: error, image: reference, workspaceId, failure },
        'the registry did not confirm a right to an image',
      );
      if (isUnknown && wasAllowed) return;
      const text = `image ${reference} is on this machine, and its registry does not give it to this workspace: ${messageOf(error)} (${failure}); ${PULL_CURES[failure]}`;
      throw imageFailure(failure, text, error);
    }
  }
}
