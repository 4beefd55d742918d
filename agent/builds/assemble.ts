// The Dockerfile that the engine gets: the ordered steps, with images and stages by their ids, commands as lists, and
// what every stage of ours needs. No text of the order reaches the engine's parser as it came. Pure.
import { MOST_LINE_BYTES, USUAL_SHELL } from '#shared/domain/dockerfile/instruction.ts';
import type { Command, Instruction } from '#shared/domain/dockerfile/instruction.ts';
import { readSteps, withShell } from '#shared/domain/dockerfile/read.ts';
import type { Source } from '#shared/domain/dockerfile/stages.ts';
import { textOf } from '#shared/domain/dockerfile/write.ts';
import { AppError } from '#shared/errors.ts';

export interface OrderedStep {
  readonly text: string;
  readonly title: string;
}

/** A step of an order that was read. */
export interface ReadStep {
  readonly instruction: Instruction;
  /** Where a FROM or a COPY has its files from. */
  readonly source: Source | undefined;
  /** For people. */
  readonly title: string;
}

export type ReadOrder =
  | { readonly kind: 'steps'; readonly steps: readonly ReadStep[] }
  | { readonly kind: 'problem'; readonly problem: string };

const MOST_TITLE = 300;

/** Reads the steps of an order; a problem: there is one that no build may have. */
export function readOrder(ordered: readonly OrderedStep[]): ReadOrder {
  const read = readSteps(ordered.map(({ text }) => text));
  if (read.kind === 'problem') return read;
  if (read.instructions.length === 0) return { kind: 'problem', problem: 'it has no steps' };
  const steps = read.instructions.map((instruction, at) => ({
    instruction,
    source: read.sources[at],
    title: (ordered[at]?.title || textOf(instruction)).slice(0, MOST_TITLE),
  }));
  return { kind: 'steps', steps };
}

/** An image that the machine has for a build. */
export interface Base {
  /** The engine's id, since a name may go to another image while the build runs. */
  readonly id: string;
  /** `amd64`, …; empty: it does not say. */
  readonly architecture: string;
}

/** Images of a build by their ids. */
export interface Known {
  /** By the names that the steps have for them. */
  readonly bases: ReadonlyMap<string, Base>;
  /** Images of the stages so far, by their numbers. */
  readonly stages: readonly string[];
}

/**
 * The image of a FROM or a COPY by its id.
 * @returns empty: it has none
 * @throws AppError `image_error`
 */
export function imageIdOf({ instruction, source }: ReadStep, { bases, stages }: Known): string {
  if (source === undefined || source.kind === 'nothing') return '';
  const base = source.kind === 'image' ? bases.get(source.image) : undefined;
  const id = source.kind === 'stage' ? stages[source.stage] : base?.id;
  if (id === undefined) throw new AppError('image_error', `the build has no image for ${textOf(instruction)}`);
  if (base !== undefined && instruction.name === 'FROM') checkPlatform(instruction.platform, instruction.image, base);
  return id;
}

/**
 * Steps as the engine gets them, without RUN.
 * @param shell - of commands in front of a SHELL
 * @throws AppError `image_error`
 */
export function forEngine(steps: readonly ReadStep[], known: Known, shell: readonly string[]): readonly Instruction[] {
  let own = shell;
  return steps.map((step): Instruction => {
    const { instruction } = step;
    switch (instruction.name) {
      case 'FROM':
        return { name: 'FROM', platform: '', image: imageIdOf(step, known) || 'scratch', stage: '' };
      case 'COPY':
      case 'ADD':
        // ADD copies as COPY does: an engine would unpack archives, whatever they are called, without any bound.
        return { ...instruction, name: 'COPY', from: imageIdOf(step, known) };
      case 'SHELL':
        own = instruction.list;
        return instruction;
      default:
        return withShell(instruction, own);
    }
  });
}

/** The program of a RUN, with its arguments. @param shell - of the image; empty: the usual one */
export const programOf = (command: Command, shell: readonly string[]): readonly string[] =>
  command.form === 'exec' ? command.list : [...shellOr(shell), command.text];

/** The shell of an image, or the usual one where it names none. */
export const shellOr = (shell: readonly string[]): readonly string[] => (shell.length > 0 ? shell : USUAL_SHELL);

/** The engine would look for another image in a registry, past the rights of the workspace. */
function checkPlatform(platform: string, image: string, { architecture }: Base): void {
  const [first = '', second = ''] = platform.toLowerCase().split('/');
  const wanted = second === '' && first !== 'linux' ? first : second;
  const system = second === '' ? 'linux' : first;
  const names: Readonly<Record<string, string>> = { x86_64: 'amd64', 'x86-64': 'amd64', aarch64: 'arm64' };
  if (system === 'linux' && (wanted === '' || architecture === '' || (names[wanted] ?? wanted) === architecture))
    return;
  throw new AppError(
    'image_error',
    `FROM --platform=${platform} ${image}: the image on this machine is for linux/${architecture}: leave --platform out`,
  );
}

export interface Surroundings {
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

/**
 * @param instructions - as `forEngine` has them
 * @param titles - one for each of them
 */
export function assemble(
  instructions: readonly Instruction[],
  titles: readonly string[],
  { labels, args, onto, certificates }: Surroundings,
): Assembled {
  const lines: string[] = [];
  const told: (string | undefined)[] = [];
  const add = (instruction: Instruction, title?: string): void => {
    lines.push(lineOf(instruction));
    told.push(title);
  };
  // Labels come first: no layer is ever used again for another workspace.
  const pairs = Object.entries(labels).map(([key, value]) => ({ key, value: [value] }));
  const begin = (): void => {
    add({ name: 'LABEL', pairs });
    if (certificates !== undefined)
      add({ name: 'COPY', from: '', chown: [], sources: [[certificates.from]], destination: [certificates.to] });
    for (const key of args) add({ name: 'ARG', args: [{ key }] });
  };
  if (onto !== undefined) {
    add({ name: 'FROM', platform: '', image: onto, stage: '' });
    begin();
  }
  for (const [at, instruction] of instructions.entries()) {
    add(instruction, titles[at]);
    if (instruction.name === 'FROM') begin();
  }
  return { dockerfile: `${lines.join('\n')}\n`, titles: told };
}

function lineOf(instruction: Instruction): string {
  const line = textOf(instruction);
  if (Buffer.byteLength(line) <= MOST_LINE_BYTES) return line;
  throw new AppError('image_error', `a step (${instruction.name}) is longer than ${MOST_LINE_BYTES} bytes`);
}
