/**
 * The parser of Dockerfiles, for the scheduler and the agent. It takes what it knows from the grammar into typed values
 * and refuses everything else with the line and the reason. A build gets the text that `write.ts` makes of the values,
 * never the file. Pure.
 */
import { OWN_LABELS } from '../built-images.ts';
import { imageProblem, isImageId } from '../image-reference.ts';
import { expansionProblem } from './expansion.ts';
import { MOST_LINE_BYTES, USUAL_SHELL } from './instruction.ts';
import type { Command, Copy, From, HealthCheck, Instruction, InstructionName, Pair } from './instruction.ts';
import { RefusedLine, linesOf } from './lines.ts';
import {
  existing,
  listOf,
  nameOfPair,
  ordinary,
  plainWordOf,
  readFiles,
  readFlags,
  spaced,
  splitAt,
  withoutFlags,
  wordsOf,
} from './parts-of-line.ts';
import { sourcesOf } from './stages.ts';
import type { Source } from './stages.ts';
import { Refused, readWord } from './words.ts';
import type { Word } from './words.ts';
import { inContext, textOf } from './write.ts';

/** An instruction of a file. */
export interface ReadInstruction {
  readonly instruction: Instruction;
  /** As the file has it, on one line; for people. */
  readonly source: string;
}

export type ReadDockerfile =
  | { readonly kind: 'instructions'; readonly instructions: readonly ReadInstruction[] }
  /** A sentence that goes on after the name of the field. */
  | { readonly kind: 'problem'; readonly problem: string };

export type ReadStep =
  | { readonly kind: 'instruction'; readonly instruction: Instruction }
  | { readonly kind: 'problem'; readonly problem: string };

/** Reads a whole file. */
export function readDockerfile(file: string): ReadDockerfile {
  try {
    const lines = linesOf(file);
    const found = lines.map(({ text, line }) => ({ line, source: text, instruction: readLine(text, line) }));
    const begin = found.find(({ instruction }) => instruction.name !== 'ARG');
    if (begin?.instruction.name !== 'FROM') return { kind: 'problem', problem: 'must begin with FROM' };
    const read = withSources(found.map(({ instruction }) => instruction));
    if (read.kind === 'problem') throw new RefusedLine(found[read.at]?.line ?? 0, read.problem);
    return { kind: 'instructions', instructions: found };
  } catch (error) {
    if (!(error instanceof RefusedLine)) throw error;
    return { kind: 'problem', problem: `line ${error.line}: ${error.message}` };
  }
}

/** Reads an instruction on one line, as `textOf` writes it. */
export function readStep(text: string): ReadStep {
  try {
    if (text.includes('\n')) throw new RefusedLine(1, 'has several lines');
    return { kind: 'instruction', instruction: readInstruction(text) };
  } catch (error) {
    if (!(error instanceof Refused) && !(error instanceof RefusedLine)) throw error;
    return { kind: 'problem', problem: error.message };
  }
}

export type ReadSteps =
  | {
      readonly kind: 'steps';
      readonly instructions: readonly Instruction[];
      /** For each instruction; undefined: it has no files of another place. */
      readonly sources: readonly (Source | undefined)[];
    }
  | { readonly kind: 'problem'; readonly at: number; readonly problem: string };

/** Reads instructions on one line each. */
export function readSteps(texts: readonly string[]): ReadSteps {
  const instructions: Instruction[] = [];
  for (const [at, text] of texts.entries()) {
    const read = readStep(text);
    if (read.kind === 'problem') return { kind: 'problem', at, problem: read.problem };
    instructions.push(read.instruction);
  }
  return withSources(instructions);
}

function withSources(instructions: readonly Instruction[]): ReadSteps {
  const found = sourcesOf(instructions);
  if (found.kind === 'problem') return found;
  const problem = expansionProblem(instructions, found.sources);
  return problem === undefined
    ? { kind: 'steps', instructions, sources: found.sources }
    : { kind: 'problem', ...problem };
}

function readLine(text: string, line: number): Instruction {
  try {
    const instruction = readInstruction(text);
    if (lengthOf(instruction) > MOST_LINE_BYTES)
      throw new Refused(
        `${instruction.name} is longer than ${MOST_LINE_BYTES} bytes: put its text into a file beside the Dockerfile, and COPY it`,
      );
    return instruction;
  } catch (error) {
    if (error instanceof Refused) throw new RefusedLine(line, error.message);
    throw error;
  }
}

const lengthOf = (instruction: Instruction): number => textOf(withShell(instruction, USUAL_SHELL)).length;

/** The instruction with a list in the place of a command for that shell. */
export function withShell(instruction: Instruction, shell: readonly string[]): Instruction {
  if (!('command' in instruction) || instruction.command?.form !== 'shell') return instruction;
  return { ...instruction, command: { form: 'exec', list: [...shell, instruction.command.text] } };
}

const NOTHING_BEHIND = /^[A-Za-z]+$/;

function readInstruction(text: string): Instruction {
  const [, word = '', rest = ''] = /^([A-Za-z]+)[ \t]+([^]*)$/.exec(text) ?? [];
  const name = word.toUpperCase();
  if (name === 'ONBUILD') throw new Refused('ONBUILD is not available: write its instruction into each image');
  if (NOTHING_BEHIND.test(text) && isKnown(text.toUpperCase()))
    throw new Refused(`${text.toUpperCase()} has nothing behind it`);
  if (!isKnown(name))
    throw new Refused(`${JSON.stringify((/^\S+/.exec(text)?.[0] ?? '').slice(0, 40))} is not an instruction`);
  if (rest.trim() === '') throw new Refused(`${name} has nothing behind it`);
  try {
    return readNamed(name, rest.replace(/[ \t]+$/, ''));
  } catch (error) {
    if (error instanceof Refused && !error.message.startsWith(name)) throw new Refused(`${name} ${error.message}`);
    throw error;
  }
}

const KNOWN: ReadonlySet<string> = new Set<InstructionName>([
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
const isKnown = (name: string): name is InstructionName => KNOWN.has(name);

/** @param rest - behind the name, without spaces at its ends */
function readNamed(name: InstructionName, rest: string): Instruction {
  switch (name) {
    case 'FROM':
      return readFrom(rest);
    case 'COPY':
    case 'ADD':
      return readCopy(name, rest);
    case 'LABEL':
      return { name, pairs: readPairs(rest, labelProblem) };
    case 'ENV':
      return { name, pairs: readPairs(rest, variableProblem) };
    case 'ARG':
      return readArg(rest);
    case 'RUN':
      return readRun(rest);
    case 'CMD':
    case 'ENTRYPOINT':
      return { name, command: readCommand(withoutFlags(rest)) };
    case 'HEALTHCHECK':
      return readHealthCheck(rest);
    case 'SHELL':
      return readShell(rest);
    case 'EXPOSE':
      return { name, words: spaced(withoutFlags(rest)).map(readPort) };
    case 'VOLUME':
      return { name, words: readFiles(withoutFlags(rest)).map(existing) };
    case 'USER':
    case 'STOPSIGNAL':
      return { name, word: plainWordOf(withoutFlags(rest)) };
    case 'WORKDIR':
      return { name, word: existing(readWord(ordinary(withoutFlags(rest)))) };
    case 'MAINTAINER':
      return readMaintainer(rest);
  }
}

const STAGE = /^[a-z][a-z0-9_.-]*$/;

function readFrom(rest: string): From {
  if (rest.includes('$'))
    throw new Refused('has a variable: write the image itself, which must be known before the build');
  if (/["'\\]/.test(rest)) throw new Refused('has quotes or a backslash');
  const { flags, behind } = readFlags(rest, ['platform']);
  const platform = flags.get('platform') ?? '';
  if (flags.has('platform') && !/^[A-Za-z0-9_.-]+(?:\/[A-Za-z0-9_.-]+){0,2}$/.test(platform))
    throw new Refused('has a --platform that is not such as linux/amd64');
  const [image = '', as, stage = '', ...more] = spaced(behind);
  if (image === '') throw new Refused('names no image');
  if (more.length > 0 || (as !== undefined && (as.toUpperCase() !== 'AS' || stage === '')))
    throw new Refused('must be an image alone, or an image, AS and the name of the stage');
  if (as !== undefined && !STAGE.test(stage.toLowerCase()))
    throw new Refused('has the name of a stage that is not a letter with letters, digits, - _ and . behind it');
  checkReference(image);
  return { name: 'FROM', platform, image, stage: stage.toLowerCase() };
}

/** An image, or a stage. A stage may be called like an id, so `sourcesOf` refuses ids, which knows the stages. */
function checkReference(text: string): void {
  const why = isImageId(text) && !text.includes(':') ? undefined : imageProblem(text);
  if (why !== undefined) throw new Refused(why);
}

const HERE_DOCUMENT = /(?:^|\s)\d*<<-?\s*[^<\s]/;
const HERE_DOCUMENT_CURE =
  'has a here-document, which the builder does not know: put its lines into a file beside the Dockerfile and COPY it, or give the command to add_commands, where lines may follow each other';

function readCopy(name: 'COPY' | 'ADD', rest: string): Copy {
  if (HERE_DOCUMENT.test(rest) && !rest.startsWith('[')) throw new Refused(HERE_DOCUMENT_CURE);
  const { flags, behind } = readFlags(rest, name === 'COPY' ? ['from', 'chown'] : ['chown']);
  const from = flags.get('from') ?? '';
  if (flags.has('from') && !/^\d{1,4}$/.test(from)) {
    if (from.includes('$')) throw new Refused('has a variable in --from: write the image or the stage itself');
    checkReference(from);
  }
  const chown = flags.has('chown') ? plainWordOf(flags.get('chown') ?? '') : [];
  const files = readFiles(behind).map(existing);
  const destination = files.pop();
  if (destination === undefined || files.length === 0) throw new Refused('must name a file and a place for it');
  for (const source of files) {
    const why = sourceProblem(source, name);
    if (why !== undefined) throw new Refused(why);
  }
  return { name, from, chown, sources: name === 'ADD' ? files.map(inContext) : files, destination };
}

/** Archives that an engine unpacks for ADD. */
const ARCHIVE = /\.(?:tar|tgz|tbz2?|txz|tzst|tar\.[a-z0-9]{1,5})$/i;

/**
 * An address among the sources: an engine fetches it as root, in the network of the machine. An archive: an engine
 * unpacks it within one instruction, and a few hundred bytes can fill the machine's disk meanwhile.
 */
function sourceProblem(source: Word, name: 'COPY' | 'ADD'): string | undefined {
  const cure = 'take the file into the folder beside the Dockerfile, or fetch it in a RUN';
  if (name === 'ADD' && source.some((part) => typeof part !== 'string'))
    return `has a source with a variable, which could be an address: write the file's name, or use COPY; ${cure} where it is an address`;
  const text = source.map((part) => (typeof part === 'string' ? part : '$')).join('');
  if (/:\/\/|^\s*(?:[a-z][a-z0-9+.-]*:\/|git@)/i.test(text)) return `has the address of a file: ${cure}`;
  if (name === 'ADD' && ARCHIVE.test(text))
    return `has the archive ${JSON.stringify(text.slice(0, 60))}, which no build unpacks: COPY it, and unpack it in a RUN with tar`;
  return undefined;
}

function readRun(rest: string): Instruction {
  if (rest.startsWith('--'))
    throw new Refused(
      'has flags, which the builder does not know: leave them out; packages that the app file names are kept between builds without --mount, and secrets are read in the handler',
    );
  const command = readCommand(rest);
  if (command.form === 'shell' && HERE_DOCUMENT.test(rest)) throw new Refused(HERE_DOCUMENT_CURE);
  if (command.form === 'exec' && command.list.length === 0) throw new Refused('has an empty list');
  return { name: 'RUN', command };
}

function readCommand(text: string): Command {
  const list = text.startsWith('[') ? listOf(text) : undefined;
  return list === undefined ? { form: 'shell', text } : { form: 'exec', list };
}

function readShell(rest: string): Instruction {
  const list = listOf(withoutFlags(rest));
  if (list === undefined || list.length === 0) throw new Refused('must have a list of JSON: SHELL ["/bin/bash", "-c"]');
  return { name: 'SHELL', list };
}

const OPTIONS: Readonly<Record<string, RegExp>> = {
  interval: /^(?:\d+(?:\.\d+)?(?:ns|us|ms|s|m|h))+$/,
  timeout: /^(?:\d+(?:\.\d+)?(?:ns|us|ms|s|m|h))+$/,
  'start-period': /^(?:\d+(?:\.\d+)?(?:ns|us|ms|s|m|h))+$/,
  retries: /^\d{1,9}$/,
};

function readHealthCheck(rest: string): HealthCheck {
  const { flags, behind } = readFlags(rest, Object.keys(OPTIONS));
  const [, kind = '', text = ''] = /^([A-Za-z]+)[ \t]*([^]*)$/.exec(behind) ?? [];
  const options = [...flags].map(([name, value]) => ({ name, value }));
  const odd = options.find(({ name, value }) => OPTIONS[name]?.test(value) !== true);
  if (odd !== undefined) throw new Refused(`has a --${odd.name} that is not such as 30s (retries: 3)`);
  if (kind.toUpperCase() === 'NONE' && text === '' && options.length === 0) return { name: 'HEALTHCHECK', options };
  if (kind.toUpperCase() !== 'CMD' || text === '') throw new Refused('must be NONE, or options, CMD and a command');
  const command = readCommand(text);
  if (command.form === 'exec' && command.list.length === 0) throw new Refused('has an empty list');
  return { name: 'HEALTHCHECK', options, command };
}

function readMaintainer(rest: string): Instruction {
  const text = ordinary(withoutFlags(rest));
  if (text.endsWith('\\')) throw new Refused('ends with a backslash');
  return { name: 'MAINTAINER', text };
}

const variableProblem = (key: string): string | undefined =>
  /^[A-Za-z_][A-Za-z0-9_.-]*$/.test(key) ? undefined : 'is not the name of a variable: letters, digits and _';

function labelProblem(key: string): string | undefined {
  // A label of ours on a container of a build would make the agent take it for one of its own.
  if (key.toLowerCase().startsWith(OWN_LABELS)) return `is not free: labels ${OWN_LABELS}* are Longshore's own`;
  return /^[A-Za-z0-9][A-Za-z0-9._/-]*$/.test(key)
    ? undefined
    : 'is not the name of a label: letters, digits, . _ / and -';
}

/** Names with their values: `A=b C="d e"`, or the old form `A b c`. */
function readPairs(rest: string, problemOf: (key: string) => string | undefined): readonly Pair[] {
  const words = wordsOf(withoutFlags(rest));
  const [first = ''] = words;
  const isOld = !first.includes('=');
  const [, oldName = '', oldValue = ''] = isOld ? (/^(\S+)[ \t]+([^]*)$/.exec(ordinary(rest)) ?? []) : [];
  if (isOld && oldValue === '') throw new Refused(`has ${JSON.stringify(rest.slice(0, 40))} without a value`);
  const texts = isOld ? [[oldName, oldValue] as const] : words.map((word) => splitAt(word));
  return texts.map(([name, value]) => {
    const key = nameOfPair(name);
    const why = problemOf(key);
    if (why !== undefined) throw new Refused(`has ${JSON.stringify(key.slice(0, 60))}, which ${why}`);
    return { key, value: readWord(value) };
  });
}

function readArg(rest: string): Instruction {
  const args = wordsOf(withoutFlags(rest)).map((word) => {
    const cut = word.indexOf('=');
    const key = nameOfPair(cut === -1 ? word : word.slice(0, cut));
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(key))
      throw new Refused(
        `has ${JSON.stringify(key.slice(0, 60))}, which is not the name of a variable: letters, digits and _`,
      );
    return cut === -1 ? { key } : { key, value: readWord(word.slice(cut + 1)) };
  });
  return { name: 'ARG', args };
}

function readPort(text: string): Word {
  const word = plainWordOf(text);
  // Docker 29 forgets what stands before such a variable.
  if (word.slice(1).some((part) => typeof part !== 'string' && part.otherwise !== undefined))
    throw new Refused(`has ${JSON.stringify(text.slice(0, 60))}: put \${NAME:-word} first in a port`);
  return word;
}
