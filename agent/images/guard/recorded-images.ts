/**
 * Names of images that the engine pulled through the agent's proxy. A tag records the pulled digest, since Docker
 * assigns no name with a digest to an image that has another one. Must stay true: while an image has a name, it has its
 * record, as an engine keeps a digest beside each pulled tag.
 */
import { recordedDigest, recordName } from '#shared/domain/guarded-images.ts';
import { digestOf, repositoryOf, tagOf, withTag } from '#shared/domain/image-reference.ts';
import type { ContainerRuntime, ImageFacts } from '../../containers/runtime.ts';

export class RecordedImages {
  readonly #runtime: Pick<ContainerRuntime, 'image' | 'removeImage' | 'tagImage'>;
  readonly #isOperators: (reference: string) => boolean;

  constructor(
    runtime: Pick<ContainerRuntime, 'image' | 'removeImage' | 'tagImage'>,
    isOperators: (reference: string) => boolean,
  ) {
    this.#runtime = runtime;
    this.#isOperators = isOperators;
  }

  async image(reference: string): Promise<ImageFacts | undefined> {
    const record = this.#recordOf(reference);
    return (record === '' ? undefined : await this.#runtime.image(record)) ?? (await this.#runtime.image(reference));
  }

  /** As an engine removes names: with the last tag of a repository, the digests of that repository go. */
  async removeImage(reference: string): Promise<boolean> {
    const record = this.#recordOf(reference);
    const repository = repositoryOf(reference);
    const { tags = [], id = '' } = (await this.#runtime.image(record || reference)) ?? {};
    const names = tags.filter((name) => name.startsWith(`${repository}:`));
    const records = names.filter((name) => recordedDigest(name) !== '');
    const others = names.filter((name) => recordedDigest(name) === '' && name !== withTag(reference));
    if (records.length === 0) return await this.#runtime.removeImage(reference);
    if (record !== '') {
      // The engine may have pulled the same digest itself, before the operator's settings changed.
      const isGone = await this.#runtime.removeImage(reference);
      return others.length > 0 ? isGone : await this.#runtime.removeImage(record);
    }
    if (!(await this.#runtime.removeImage(reference))) return false;
    if (others.length > 0) return true;
    for (const name of records)
      if (!(await this.#runtime.removeImage(name))) {
        await this.#runtime.tagImage(id, repository, tagOf(reference));
        return false;
      }
    return true;
  }

  /** The recorded name of a reference with a digest; empty: there is none. */
  #recordOf(reference: string): string {
    const digest = this.#isOperators(reference) ? '' : digestOf(reference);
    return digest === '' ? '' : recordName(reference, digest);
  }
}
