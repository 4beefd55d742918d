/** Image orders of the scheduler before any container: resolve a reference to its present digest, and pull ahead. */
import { digestOf, pinnedTo } from '#shared/domain/image-reference.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { ImagePrepared, PrepareImage__Output } from '#shared/protocol/generated/messages.ts';
import { Limiter } from '../containers/limiter.ts';
import type { ContainerRuntime, ImageFacts } from '../containers/runtime.ts';
import { classifyPull, isTransient, PULL_CURES } from './failures.ts';
import type { Images } from './images.ts';

const ASK_REGISTRY_MS = 8000;
/** Bounds on concurrent questions to registries, and on waiting ones; further orders are told to ask later. */
const ASKED_AT_ONCE = 4;
const MOST_ASKED = 32;
/** Bound on images in pulls ahead, waiting ones included; others are left to the start that needs them. */
const MAX_AHEAD = 16;

export interface PreparerParts {
  readonly runtime: Pick<ContainerRuntime, 'image' | 'registryDigest'>;
  readonly images: Pick<Images, 'ensure'>;
  /** Whether this agent pulled the image itself: by that reference, or the image with that id by another one. */
  readonly isOurs: (reference: string, imageId: string) => boolean;
  readonly imageOf: (image: string, pythonVersion: string) => string;
  readonly answer: (answer: ImagePrepared) => void;
  readonly log: Log;
}

export class ImagePreparer {
  readonly #parts: PreparerParts;
  readonly #asking = new Limiter(ASKED_AT_ONCE);
  #asked = 0;
  #ahead = 0;

  constructor(parts: PreparerParts) {
    this.#parts = parts;
  }

  async take(order: PrepareImage__Output): Promise<void> {
    const { imageOf, answer } = this.#parts;
    const image = imageOf(order.image, order.pythonVersion);
    if (order.resolve) answer({ requestId: order.requestId, ...(await this.#resolve(image, order)) });
    if (order.pull) await this.#pull(pinnedTo(image, order.digest), order.workspaceId);
  }

  /**
   * Resolves a reference: an image built or loaded here stands for itself; a registry's image has its present digest
   * there.
   */
  async #resolve(image: string, order: PrepareImage__Output): Promise<Omit<ImagePrepared, 'requestId'>> {
    const here = await this.#parts.runtime.image(image).catch(() => undefined);
    if (here?.isLocal === true) return { digest: '' };
    if (this.#asked >= MOST_ASKED)
      return { failure: 'busy', message: `image ${image}: this machine asks registries about ${MOST_ASKED} already` };
    this.#asked += 1;
    try {
      return await this.#asking.run(() => this.#ask(image, order, here));
    } finally {
      this.#asked -= 1;
    }
  }

  /**
   * Asks the registry. When it cannot be asked, the local image keeps its digest. A refusal is believed for images that
   * this agent pulled from it: their presence here must not give them to workspaces that could not get them now. Images
   * that others loaded, built or pulled on this machine are the operator's to offer, even when a registry refuses the
   * name.
   */
  async #ask(
    image: string,
    order: PrepareImage__Output,
    here: ImageFacts | undefined,
  ): Promise<Omit<ImagePrepared, 'requestId'>> {
    const { runtime, log, isOurs } = this.#parts;
    try {
      return { digest: await runtime.registryDigest(image, order.auth ?? undefined, ASK_REGISTRY_MS) };
    } catch (error) {
      const failure = classifyPull(messageOf(error));
      log.info({ err: error, image, failure }, 'the registry did not say what an image means');
      const digests = here?.digests ?? [];
      const known = digestOf(image) || digests[0];
      const names = [image, ...digests.map((digest) => pinnedTo(image, digest))];
      const pulledHere = here !== undefined && names.some((name) => isOurs(name, here.id));
      if (here !== undefined && known !== undefined && (isTransient(failure) || !pulledHere)) return { digest: known };
      return { failure, message: `image ${image}: ${messageOf(error)} (${failure}); ${PULL_CURES[failure]}` };
    }
  }

  async #pull(reference: string, workspaceId: string): Promise<void> {
    if (this.#ahead >= MAX_AHEAD) return;
    this.#ahead += 1;
    try {
      await this.#parts.images.ensure(reference, () => undefined, workspaceId);
    } catch (error) {
      this.#parts.log.info({ err: error, image: reference }, 'image not pulled ahead');
    } finally {
      this.#ahead -= 1;
    }
  }
}
