// The meaning of instructions as the programs of Docker's parsers print it, here from our values.
import type { Instruction } from '#shared/domain/dockerfile/instruction.ts';
import type { Word } from '#shared/domain/dockerfile/words.ts';

export interface Meaning {
  readonly name: string;
  readonly image?: string;
  readonly stage?: string;
  readonly flags?: readonly string[];
  readonly words?: readonly string[];
  readonly pairs?: readonly (readonly string[])[];
  readonly shell?: boolean;
}

export type Variables = Readonly<Record<string, string>>;

/** A word with the values of its variables. */
export const expanded = (word: Word, variables: Variables): string =>
  word
    .map((part) => {
      if (typeof part === 'string') return part;
      const value = variables[part.name] ?? '';
      if (part.otherwise === undefined) return value;
      const other = expanded(part.otherwise.word, variables);
      return part.otherwise.kind === '-' ? value || other : value === '' ? '' : other;
    })
    .join('');

/** Empty lists and texts are left out, as in the programs' answers. */
export function meaningOf(instruction: Instruction, variables: Variables): Meaning {
  const text = (word: Word): string => expanded(word, variables);
  const { name } = instruction;
  switch (instruction.name) {
    case 'FROM':
      return { name, image: instruction.image };
    case 'COPY':
    case 'ADD': {
      const sources = instruction.sources.map(text);
      const chown = text(instruction.chown);
      return {
        name,
        ...(instruction.from === '' ? {} : { image: instruction.from }),
        ...(chown === '' ? {} : { flags: [`chown=${chown}`] }),
        words: [...sources, text(instruction.destination)],
      };
    }
    case 'LABEL':
    case 'ENV':
      return { name, pairs: instruction.pairs.map(({ key, value }) => [key, text(value)]) };
    case 'ARG':
      return {
        name,
        pairs: instruction.args.map(({ key, value }) => (value === undefined ? [key] : [key, text(value)])),
      };
    case 'RUN':
    case 'CMD':
    case 'ENTRYPOINT': {
      const { command } = instruction;
      if (command.form === 'shell') return { name, words: [command.text], shell: true };
      return command.list.length === 0 ? { name } : { name, words: command.list };
    }
    case 'HEALTHCHECK': {
      const { command } = instruction;
      if (command === undefined) return { name, words: ['NONE'] };
      return { name, words: command.form === 'exec' ? ['CMD', ...command.list] : ['CMD-SHELL', command.text] };
    }
    case 'SHELL':
      return { name, words: instruction.list };
    case 'EXPOSE': {
      const words = instruction.words.flatMap((word) => text(word).split(' '));
      return { name, words: words.filter((word) => word !== '').toSorted() };
    }
    case 'VOLUME':
      return { name, words: instruction.words.map(text) };
    case 'USER':
    case 'WORKDIR':
    case 'STOPSIGNAL':
      return { name, words: [text(instruction.word)] };
    case 'MAINTAINER':
      return { name, words: [instruction.text] };
  }
}
