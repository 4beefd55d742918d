/**
 * An upper bound of what instructions make of an image's configuration, with every variable at its longest. The engine
 * expands variables in its own memory, and reads the configuration anew for each list of images. Pure.
 */
import { MOST_PORTS, MOST_VOLUMES } from '../image-config.ts';
import type { Command, Instruction } from './instruction.ts';
import type { Source } from './stages.ts';
import { literalOf } from './words.ts';
import type { Word } from './words.ts';

/** Bytes of one value: a variable, a label, a path. */
const MOST_VALUE_BYTES = 32 * 1024;
/** Bytes of all values that an image has in the end. */
const MOST_ALL_BYTES = 256 * 1024;
/** Bytes of all instructions: the history in an image's configuration keeps each of them, expanded. */
const MOST_HISTORY_BYTES = 1024 * 1024;

/** Instructions that are counted: an image has fewer steps. */
const MOST_INSTRUCTIONS = 512;

/** All values that a word may have. */
interface Values {
  /** The longest. */
  readonly bytes: number;
  /** A value may hold a `-` or a space: as a port it would be a range, or several ports. */
  readonly isWide: boolean;
}

const NOTHING: Values = { bytes: 0, isWide: false };
const bytesOf = (text: string): number => Buffer.byteLength(text);
const valuesOf = (text: string): Values => ({ bytes: bytesOf(text), isWide: /[-\s]/.test(text) });
const either = (one: Values, other: Values): Values => ({
  bytes: Math.max(one.bytes, other.bytes),
  isWide: one.isWide || other.isWide,
});

/** Variables that are known besides the instructions. */
export interface KnownVariables {
  /** Variables of images (`NAME=value`) by the names that the instructions have for them. */
  readonly bases?: ReadonlyMap<string, readonly string[]>;
  /** Variables that every step gets. */
  readonly variables?: Readonly<Record<string, string>>;
}

/** A stage so far. */
interface Stage {
  readonly env: Map<string, Values>;
  readonly args: Map<string, Values>;
  /** Bytes of everything else in the configuration, by a name for each part. */
  readonly rest: Map<string, number>;
  history: number;
  ports: number;
  volumes: number;
}

class TooMuch extends Error {
  override readonly name = 'TooMuch';
}

/** @returns the first instruction that may pass a bound, and why; undefined: there is none */
export function expansionProblem(
  instructions: readonly Instruction[],
  sources: readonly (Source | undefined)[],
  { bases, variables = {} }: KnownVariables = {},
): { readonly at: number; readonly problem: string } | undefined {
  if (instructions.length > MOST_INSTRUCTIONS)
    return { at: MOST_INSTRUCTIONS, problem: `is more than the ${MOST_INSTRUCTIONS} instructions that may be counted` };
  const own = Object.entries(variables).map(([name, value]) => [name, valuesOf(value)] as const);
  const stages: Stage[] = [];
  const begun = (source: Source | undefined): Stage => {
    const before = source?.kind === 'stage' ? stages[source.stage] : undefined;
    const env = source?.kind === 'image' ? (bases?.get(source.image) ?? []) : [];
    return {
      env: new Map(before?.env ?? env.map(variableOf)),
      args: new Map(own),
      rest: new Map(before?.rest),
      history: before?.history ?? 0,
      ports: before?.ports ?? 0,
      volumes: before?.volumes ?? 0,
    };
  };
  const globals = begun(undefined);
  for (const [at, instruction] of instructions.entries()) {
    if (instruction.name === 'FROM') stages.push(begun(sources[at]));
    try {
      take(instruction, stages.at(-1) ?? globals, globals.args);
    } catch (error) {
      if (!(error instanceof TooMuch)) throw error;
      return { at, problem: `${instruction.name} ${error.message}` };
    }
  }
  return undefined;
}

function variableOf(text: string): readonly [string, Values] {
  const cut = text.indexOf('=');
  return cut === -1 ? [text, NOTHING] : [text.slice(0, cut), valuesOf(text.slice(cut + 1))];
}

/** @throws TooMuch */
function take(instruction: Instruction, stage: Stage, globals: ReadonlyMap<string, Values>): void {
  const { env, args, rest } = stage;
  const add = (part: string, bytes: number): void => {
    rest.set(part, bytes);
    stage.history += bytes;
  };
  switch (instruction.name) {
    case 'FROM':
      return;
    case 'ENV':
      for (const { key, value } of instruction.pairs) stage.history += set(env, key, checked(value, stage, key));
      break;
    case 'ARG':
      for (const { key, value } of instruction.args)
        stage.history += set(args, key, value === undefined ? globals.get(key) : checked(value, stage, key));
      break;
    case 'LABEL':
      for (const { key, value } of instruction.pairs)
        add(`label ${key}`, bytesOf(key) + checked(value, stage, key).bytes);
      break;
    case 'COPY':
    case 'ADD':
      for (const word of [instruction.chown, ...instruction.sources, instruction.destination])
        stage.history += checked(word, stage).bytes;
      break;
    case 'WORKDIR':
      add('WORKDIR', folderBytes(instruction.word, stage));
      break;
    case 'USER':
    case 'STOPSIGNAL':
      add(instruction.name, checked(instruction.word, stage).bytes);
      break;
    case 'VOLUME':
      stage.volumes += instruction.words.length;
      if (stage.volumes > MOST_VOLUMES)
        throw new TooMuch(`makes more than ${MOST_VOLUMES} volumes: files stay in the image without it`);
      for (const [at, word] of instruction.words.entries())
        add(`volume ${stage.volumes} ${at}`, checked(word, stage).bytes);
      break;
    case 'EXPOSE':
      for (const word of instruction.words) {
        add(`port ${stage.ports}`, checked(word, stage).bytes);
        stage.ports += portsOf(word, stage);
      }
      if (stage.ports > MOST_PORTS) throw new TooMuch(`names more than ${MOST_PORTS} ports: leave it out`);
      break;
    case 'RUN':
      // A shell sets the variables of ARG in the command itself.
      stage.history += commandBytes(instruction.command) + sumOf(args);
      break;
    case 'CMD':
    case 'ENTRYPOINT':
      add(instruction.name, commandBytes(instruction.command));
      break;
    case 'HEALTHCHECK':
      add('HEALTHCHECK', instruction.command === undefined ? 0 : commandBytes(instruction.command));
      break;
    case 'SHELL':
      add(
        'SHELL',
        instruction.list.reduce((sum, one) => sum + bytesOf(one), 0),
      );
      break;
    case 'MAINTAINER':
      stage.history += bytesOf(instruction.text);
      break;
  }
  const all = sumOf(env) + sumOf(args) + [...rest.values()].reduce((sum, one) => sum + one, 0);
  if (all > MOST_ALL_BYTES)
    throw new TooMuch(
      `makes the image's variables, labels and other settings ${all} bytes long, and they may have ${MOST_ALL_BYTES} bytes: put long texts into files, and COPY them`,
    );
  if (stage.history > MOST_HISTORY_BYTES)
    throw new TooMuch(
      `makes the history of the image longer than ${MOST_HISTORY_BYTES} bytes, with its variables: use fewer instructions with long variables`,
    );
}

const commandBytes = (command: Command): number =>
  command.form === 'shell' ? bytesOf(command.text) : command.list.reduce((sum, one) => sum + bytesOf(one), 0);

/** Names count, too. */
const sumOf = (variables: ReadonlyMap<string, Values>): number =>
  [...variables].reduce((sum, [name, { bytes }]) => sum + name.length + bytes, 0);

/** @returns the bytes of the name and the value */
function set(variables: Map<string, Values>, name: string, value: Values = NOTHING): number {
  variables.set(name, value);
  return bytesOf(name) + value.bytes;
}

/** A folder that does not begin with a slash is below the one before. */
function folderBytes(word: Word, stage: Stage): number {
  const [first = ''] = word;
  const isWhole = typeof first === 'string' && first.startsWith('/');
  const bytes = checked(word, stage).bytes + (isWhole ? 0 : 1 + (stage.rest.get('WORKDIR') ?? 0));
  return bounded(bytes, '');
}

/** @throws TooMuch */
function checked(word: Word, stage: Stage, name = ''): Values {
  const values = longest(word, stage);
  bounded(values.bytes, name);
  return values;
}

function bounded(bytes: number, name: string): number {
  if (bytes <= MOST_VALUE_BYTES) return bytes;
  const of = name === '' ? 'has a value that' : `${name.slice(0, 60)}`;
  throw new TooMuch(
    `${of} is up to ${bytes} bytes long with its variables, and may have ${MOST_VALUE_BYTES}: put the text into a file, and COPY it`,
  );
}

/** A name may mean the variable or the ARG, as versions of the engine have it. */
function longest(word: Word, stage: Stage): Values {
  let all = NOTHING;
  for (const part of word) {
    const one = typeof part === 'string' ? valuesOf(part) : variable(part.name, stage, part.otherwise);
    all = { bytes: all.bytes + one.bytes, isWide: all.isWide || one.isWide };
  }
  return all;
}

function variable(
  name: string,
  stage: Stage,
  otherwise: { readonly kind: '-' | '+'; readonly word: Word } | undefined,
): Values {
  const itself = either(stage.env.get(name) ?? NOTHING, stage.args.get(name) ?? NOTHING);
  if (otherwise === undefined) return itself;
  const word = longest(otherwise.word, stage);
  return otherwise.kind === '+' ? word : either(itself, word);
}

/** Ports that a word of EXPOSE names. */
function portsOf(word: Word, stage: Stage): number {
  const text = literalOf(word);
  if (text === undefined) {
    if (longest(word, stage).isWide)
      throw new TooMuch('has a variable that may name several ports: write the ports themselves');
    return 1;
  }
  const [, first, last] = /(?:^|:)(\d{1,5})-(\d{1,5})(?:\/[a-z]+)?$/i.exec(text) ?? [];
  return first === undefined || last === undefined ? 1 : Math.max(1, Number(last) - Number(first) + 1);
}
