// Stages of a Dockerfile: which image or earlier stage each FROM and each COPY takes. Pure.
import { imageProblem } from '../image-reference.ts';
import type { Instruction } from './instruction.ts';

/** Where a FROM or a COPY has its files from. */
export type Source =
  | { readonly kind: 'image'; readonly image: string }
  /** An earlier stage, by its number from 0. */
  | { readonly kind: 'stage'; readonly stage: number }
  /** FROM alone: an empty image. COPY alone: the build's files. */
  | { readonly kind: 'nothing' };

export type Sources =
  /** For each instruction; undefined: it is neither a FROM nor a COPY. */
  | { readonly kind: 'sources'; readonly sources: readonly (Source | undefined)[] }
  | { readonly kind: 'problem'; readonly at: number; readonly problem: string };

const EMPTY_IMAGE = 'scratch';

/** Finds the sources in order, since a stage is known from its end on. */
export function sourcesOf(instructions: readonly Instruction[]): Sources {
  const stages = new Map<string, number>();
  const sources: (Source | undefined)[] = [];
  let count = 0;
  /** The name of the stage that goes on; other instructions do not see it. */
  let open = '';
  for (const [at, instruction] of instructions.entries()) {
    const problem = (text: string): Sources => ({ kind: 'problem', at, problem: text });
    if (instruction.name === 'FROM') {
      if (open !== '') stages.set(open, count - 1);
      const { image, stage } = instruction;
      const known = stages.get(image.toLowerCase());
      const why = known === undefined ? imageProblem(image) : undefined;
      if (why !== undefined) return problem(`FROM ${why}`);
      sources.push(
        known !== undefined
          ? { kind: 'stage', stage: known }
          : image === EMPTY_IMAGE
            ? { kind: 'nothing' }
            : { kind: 'image', image },
      );
      if (stage !== '' && stages.has(stage)) return problem(`FROM has the name of another stage, ${stage}`);
      open = stage;
      count += 1;
    } else if (instruction.name === 'COPY' && instruction.from !== '') {
      const { from } = instruction;
      const isNumber = /^\d+$/.test(from);
      const known = isNumber ? Number(from) : stages.get(from.toLowerCase());
      if (isNumber && Number(from) >= count - 1)
        return problem(`COPY has --from=${from}, and no stage before has that number`);
      if (known === undefined && from === EMPTY_IMAGE) return problem('COPY has --from=scratch, which has no files');
      const why = known === undefined ? imageProblem(from) : undefined;
      if (why !== undefined) return problem(`COPY ${why}`);
      sources.push(known === undefined ? { kind: 'image', image: from } : { kind: 'stage', stage: known });
    } else if (instruction.name === 'COPY' || instruction.name === 'ADD') sources.push({ kind: 'nothing' });
    else sources.push(undefined);
  }
  return { kind: 'sources', sources };
}

/** Images among the sources, each once. */
export const imagesIn = (sources: readonly (Source | undefined)[]): readonly string[] => [
  ...new Set(sources.flatMap((source) => (source?.kind === 'image' ? [source.image] : []))),
];
