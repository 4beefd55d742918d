/** What the scheduler asks of this machine's images before a container does: what a reference means now, and to have it here. */
import { pinnedTo } from '#shared/domain/image-reference.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { ImagePrepared, PrepareImage__Output } from '#shared/protocol/generated/messages.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { classifyPull, PULL_CURES } from './failures.ts';
import type { Images } from './images.ts';

const ASK_REGISTRY_MS = 8000;
/** Images that are pulled ahead, or wait for it; more are left to the start that wants them. */
const MAX_AHEAD = 16;

export interface PreparerParts {
  readonly runtime: Pick<ContainerRuntime, 'image' | 'registryDigest'>;
  readonly images: Pick<Images, 'ensure'>;
  readonly imageOf: (image: string, pythonVersion: string) => string;
  readonly answer: (answer: ImagePrepared) => void;
  readonly log: Log;
}

export class ImagePreparer {
  readonly #parts: PreparerParts;
  #ahead = 0;

  constructor(parts: PreparerParts) {
    this.#parts = parts;
  }

  async take(order: PrepareImage__Output): Promise<void> {
    const { imageOf, answer } = this.#parts;
    const image = imageOf(order.image, order.pythonVersion);
    if (order.resolve) answer({ requestId: order.requestId, ...(await this.#resolve(image, order)) });
    if (order.pull) await this.#pull(pinnedTo(image, order.digest));
  }

  /** What was made or loaded here means what it is; what came from a registry, what that has now. */
  async #resolve(image: string, order: PrepareImage__Output): Promise<Omit<ImagePrepared, 'requestId'>> {
    const { runtime, log } = this.#parts;
    const here = await runtime.image(image).catch(() => undefined);
    if (here?.digests.length === 0) return { digest: '' };
    try {
      return { digest: await runtime.registryDigest(image, order.auth ?? undefined, ASK_REGISTRY_MS) };
    } catch (error) {
      const failure = classifyPull(messageOf(error));
      log.info({ err: error, image, failure }, 'the registry did not say what an image means');
      const [known] = here?.digests ?? [];
      if (known !== undefined) return { digest: known };
      return { failure, message: `image ${image}: ${messageOf(error)} (${failure}); ${PULL_CURES[failure]}` };
    }
  }

  async #pull(reference: string): Promise<void> {
    if (this.#ahead >= MAX_AHEAD) return;
    this.#ahead += 1;
    try {
      await this.#parts.images.ensure(reference, () => undefined);
    } catch (error) {
      this.#parts.log.info({ err: error, image: reference }, 'image not pulled ahead');
    } finally {
      this.#ahead -= 1;
    }
  }
}
