/**
 * Reads a Dockerfile into instructions of one line each. A build gets these lines and never the file: the engine's
 * parser then has nothing left to understand differently from this one. Pure.
 */
import { OWN_LABELS } from './built-images.ts';

export interface Instruction {
  /** In capitals: `FROM`, `RUN`, … */
  readonly name: string;
  /** Everything behind the name, on one line. */
  readonly rest: string;
  /** Line of the file on which it begins, from 1. */
  readonly line: number;
}

export type ReadDockerfile =
  | { readonly kind: 'instructions'; readonly instructions: readonly Instruction[] }
  /** A sentence that goes on after the name of the field. */
  | { readonly kind: 'problem'; readonly problem: string };

const KNOWN = new Set([
  'ADD',
  'ARG',
  'CMD',
  'COPY',
  'ENTRYPOINT',
  'ENV',
  'EXPOSE',
  'FROM',
  'HEALTHCHECK',
  'LABEL',
  'MAINTAINER',
  'RUN',
  'SHELL',
  'STOPSIGNAL',
  'USER',
  'VOLUME',
  'WORKDIR',
]);
/** A directive at the head of a file would change how the engine reads it, or who reads it. */
const DIRECTIVE = /^#\s*(?:syntax|escape|check)\s*=/i;
const HERE_DOCUMENT = /(?:^|\s)\d*<<-?[^<\s]/;

export const textOf = ({ name, rest }: Pick<Instruction, 'name' | 'rest'>): string => `${name} ${rest}`;

/** Reads a whole file. */
export function readDockerfile(text: string): ReadDockerfile {
  const found: Instruction[] = [];
  const lines = text.replace(/^\uFEFF/, '').split(/\r?\n/);
  for (let at = 0; at < lines.length; at += 1) {
    const line = at + 1;
    const first = (lines[at] ?? '').trim();
    if (first === '') continue;
    if (first.startsWith('#')) {
      if (found.length === 0 && DIRECTIVE.test(first))
        return problem(line, `the directive ${first.slice(0, 40)} is not available: leave the line out`);
      continue;
    }
    let joined = '';
    for (;;) {
      const part = lines[at] ?? '';
      // Empty lines and comments inside an instruction do not end it.
      const isLeftOut = joined !== '' && /^\s*(?:#|$)/.test(part);
      const isContinued = isLeftOut || /\\[ \t]*$/.test(part);
      if (!isLeftOut) joined += part.replace(/\\[ \t]*$/, '');
      if (!isContinued || at + 1 >= lines.length) break;
      at += 1;
    }
    const [, name = '', rest = ''] = /^(\S+)\s*([\s\S]*)$/.exec(joined.trim()) ?? [];
    const instruction = { name: name.toUpperCase(), rest: rest.trim(), line };
    const why = instructionProblem(instruction);
    if (why !== undefined) return problem(line, why);
    found.push(instruction);
  }
  const begin = found.find(({ name }) => name !== 'ARG');
  if (begin?.name !== 'FROM') return { kind: 'problem', problem: 'must begin with FROM' };
  return { kind: 'instructions', instructions: found };
}

/** Reads one line that `textOf` wrote. @returns undefined for a line that no build may have */
export function readStep(text: string): Instruction | undefined {
  const [, name = '', rest = ''] = /^([A-Z]+) (.*)$/.exec(text) ?? [];
  const instruction = { name, rest, line: 1 };
  return instructionProblem(instruction) === undefined ? instruction : undefined;
}

const problem = (line: number, why: string): ReadDockerfile => ({ kind: 'problem', problem: `line ${line}: ${why}` });

/** Why no build may have the instruction; undefined: it may. */
function instructionProblem({ name, rest }: Pick<Instruction, 'name' | 'rest'>): string | undefined {
  if (name === 'ONBUILD') return 'ONBUILD is not available: write its instruction into each image';
  if (!KNOWN.has(name)) return `${JSON.stringify(name.slice(0, 40))} is not an instruction`;
  if (rest === '') return `${name} has nothing behind it`;
  if (/[\n\r\0]/.test(rest) || rest.endsWith('\\')) return `${name} ends with a backslash`;
  if (/^(?:RUN|COPY|ADD)$/.test(name) && !rest.startsWith('[') && HERE_DOCUMENT.test(rest))
    return `${name} has a here-document, which the builder does not know: put its lines into a file beside the Dockerfile and COPY it, or give the command to add_commands, where lines may follow each other`;
  switch (name) {
    case 'FROM':
      if (/["'\\]/.test(rest)) return 'FROM has quotes or a backslash';
      if (rest.includes('$'))
        return 'FROM has a variable: write the image itself, which must be known before the build';
      return imageOf(rest) === undefined ? 'FROM names no image' : undefined;
    case 'RUN':
      return rest.startsWith('--')
        ? 'RUN has flags, which the builder does not know: leave them out; packages that the app file names are kept between builds without --mount, and secrets are read in the handler'
        : undefined;
    case 'COPY':
    case 'ADD':
      return flagsOf(rest).some((flag) => /["'\\$]/.test(flag))
        ? `${name} has a flag with quotes, a backslash or a variable`
        : undefined;
    case 'LABEL':
      // A label of ours on a container of a build would make the agent take it for one of its own.
      if (rest.toLowerCase().includes(OWN_LABELS)) return `LABEL names ${OWN_LABELS}*, which are Longshore's own`;
      return /(?:^|\s)[^\s=]*[$\\"'][^\s=]*=/.test(rest) || /^[^\s=]*[$\\"']/.test(rest)
        ? 'LABEL has a quoted or variable name: write it as it is'
        : undefined;
    default:
      return undefined;
  }
}

/** Images that the instructions need, without stages of their own. `scratch` is none. */
export function imagesOf(instructions: readonly Pick<Instruction, 'name' | 'rest'>[]): readonly string[] {
  const stages = new Set<string>();
  const images = new Set<string>();
  let count = 0;
  const need = (name: string): void => {
    if (name !== 'scratch' && !stages.has(name.toLowerCase()) && !(/^\d+$/.test(name) && Number(name) < count))
      images.add(name);
  };
  for (const { name, rest } of instructions) {
    if (name === 'FROM') {
      need(imageOf(rest) ?? '');
      const stage = /\sas\s+(\S+)\s*$/i.exec(rest)?.[1];
      if (stage !== undefined) stages.add(stage.toLowerCase());
      count += 1;
    } else if (name === 'COPY' || name === 'ADD') {
      for (const flag of flagsOf(rest)) if (flag.startsWith('--from=')) need(flag.slice('--from='.length));
    }
  }
  return [...images];
}

/** The image of a FROM. */
const imageOf = (rest: string): string | undefined =>
  rest.split(/\s+/).find((word) => word !== '' && !word.startsWith('--'));

/** A FROM with another image in the place of its own. */
export const withImage = (rest: string, image: string): string =>
  rest.replace(/^((?:--\S+\s+)*)\S+/, (_all, flags: string) => `${flags}${image}`);

function flagsOf(rest: string): readonly string[] {
  const words = rest.split(/\s+/);
  const end = words.findIndex((word) => !word.startsWith('--'));
  return end === -1 ? words : words.slice(0, end);
}
