// The Dockerfile that the engine gets: the ordered steps, with images by their ids, and what every stage of ours needs.
// Pure.
import { imagesOf, readStep, textOf, withImage } from '#shared/domain/dockerfile.ts';
import type { Instruction } from '#shared/domain/dockerfile.ts';

export interface OrderedStep {
  readonly text: string;
  readonly title: string;
}

/** The steps as instructions; undefined: there is one that no build may have. */
export function instructionsOf(steps: readonly OrderedStep[]): readonly Instruction[] | undefined {
  const read = steps.map(({ text }) => readStep(text));
  const good = read.filter((one) => one !== undefined);
  return good.length === steps.length && good.length > 0 ? good : undefined;
}

/** Images that the machine needs; `BASE_IMAGE` stands for its own base image. */
export const basesOf = (instructions: readonly Instruction[]): readonly string[] => imagesOf(instructions);

export interface Surroundings {
  /** The engine's id of each image. */
  readonly ids: ReadonlyMap<string, string>;
  readonly labels: Readonly<Record<string, string>>;
  /** Names of variables that steps may read. */
  readonly args: readonly string[];
  /** The image on which these instructions go on, by its id; absent: they begin with a FROM of their own. */
  readonly onto?: string;
  /** A file of the context with certificates, and its place in the image; absent: none. */
  readonly certificates?: { readonly from: string; readonly to: string };
}

export interface Assembled {
  readonly dockerfile: string;
  /** For each instruction of it, in order: its title for people; undefined: ours, which nobody is told of. */
  readonly titles: readonly (string | undefined)[];
}

const MOST_TITLE = 300;

export function assemble(
  steps: readonly OrderedStep[],
  instructions: readonly Instruction[],
  { ids, labels, args, onto, certificates }: Surroundings,
): Assembled {
  const lines: string[] = [];
  const titles: (string | undefined)[] = [];
  const ours = (line: string): void => {
    lines.push(line);
    titles.push(undefined);
  };
  // Labels come first: no layer is ever used again for another workspace.
  const pairs = Object.entries(labels).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  const begin = (): void => {
    ours(`LABEL ${pairs.join(' ')}`);
    if (certificates !== undefined) ours(`COPY ${certificates.from} ${certificates.to}`);
    for (const arg of args) ours(`ARG ${arg}`);
  };
  if (onto !== undefined) {
    ours(`FROM ${onto}`);
    begin();
  }
  for (const [index, instruction] of instructions.entries()) {
    const { name, rest } = instruction;
    const title = titleOf(steps[index], instruction);
    lines.push(textOf({ name, rest: withIds(name, rest, ids) }));
    titles.push(title);
    if (name === 'FROM') begin();
  }
  return { dockerfile: `${lines.join('\n')}\n`, titles };
}

/** The title of a step, for people. */
export const titleOf = (step: OrderedStep | undefined, instruction: Instruction): string =>
  (step?.title || textOf(instruction)).slice(0, MOST_TITLE);

/** An image by its id, which a name may leave while the build runs. */
function withIds(name: string, rest: string, ids: ReadonlyMap<string, string>): string {
  if (name === 'FROM') {
    const image = rest.split(/\s+/).find((word) => !word.startsWith('--')) ?? '';
    const id = ids.get(image);
    return id === undefined ? rest : withImage(rest, id);
  }
  if (name !== 'COPY' && name !== 'ADD') return rest;
  return rest.replaceAll(/--from=(\S+)/g, (all, image: string) => {
    const id = ids.get(image);
    return id === undefined ? all : `--from=${id}`;
  });
}
