// Stages of a build by name and number, once each of them is an image. Pure.
import type { Instruction } from '#shared/domain/dockerfile.ts';
import { withImage } from '#shared/domain/dockerfile.ts';

export class StageNames {
  readonly #ids = new Map<string, string>();
  #count = 0;
  #names: readonly string[] = [];

  /** A stage began. */
  began({ rest }: Pick<Instruction, 'rest'>): void {
    const name = /\sas\s+(\S+)\s*$/i.exec(rest)?.[1];
    this.#names = [String(this.#count), ...(name === undefined ? [] : [name.toLowerCase()])];
    this.#count += 1;
  }

  /** The stage that began last is this image so far. */
  is(imageId: string): void {
    for (const name of this.#names) this.#ids.set(name, imageId);
  }

  /** The instruction with the image of a stage in the place of the stage's name. */
  resolved(instruction: Instruction): Instruction {
    const { name, rest } = instruction;
    if (name === 'FROM') {
      const word = rest.split(/\s+/).find((one) => one !== '' && !one.startsWith('--')) ?? '';
      const id = /^\d+$/.test(word) ? undefined : this.#ids.get(word.toLowerCase());
      return id === undefined ? instruction : { ...instruction, rest: withImage(rest, id) };
    }
    if (name !== 'COPY' && name !== 'ADD') return instruction;
    const resolved = rest.replaceAll(/--from=(\S+)/g, (all, stage: string) => {
      const id = this.#ids.get(stage.toLowerCase());
      return id === undefined ? all : `--from=${id}`;
    });
    return { ...instruction, rest: resolved };
  }
}
