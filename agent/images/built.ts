/**
 * Images that Longshore built, on machines that did not build them: pulled through the registry port, then named as
 * where they were built. Must stay true: the name with the port is here for the pull only, and no workspace may use it.
 */
import { isRegistryPortReference } from '#shared/domain/built-images.ts';
import { isPullProxyReference } from '#shared/domain/guarded-images.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';

export interface BuiltImagesParts {
  readonly runtime: Pick<ContainerRuntime, 'tagImage' | 'removeImage' | 'listImages'>;
  /** `host:port` of the registry port; undefined: it is not open. */
  readonly host: () => string | undefined;
}

export class BuiltImages {
  readonly #parts: BuiltImagesParts;

  constructor(parts: BuiltImagesParts) {
    this.#parts = parts;
  }

  get host(): string | undefined {
    return this.#parts.host();
  }

  /** Removes names that an agent left which was killed in a pull or a push. */
  async tidy(): Promise<void> {
    const { runtime } = this.#parts;
    for (const name of await runtime.listImages())
      if (isRegistryPortReference(name) || isPullProxyReference(name)) await runtime.removeImage(name);
  }

  /** Gives a pulled image its own name, and takes the one of the pull away. */
  async adopt(pulledAs: string, imageId: string, name: string): Promise<void> {
    const { runtime } = this.#parts;
    await runtime.tagImage(imageId, name);
    await runtime.removeImage(pulledAs);
  }
}
