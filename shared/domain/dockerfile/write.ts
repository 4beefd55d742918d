/**
 * Instructions as the text that the engine's parser gets. The form is chosen so that no parser can read another value
 * out of it: lists for files and commands, quotes around values, plain characters elsewhere. `readStep` reads the text
 * back into the same value. Pure.
 */
import type { Command, Copy, From, HealthCheck, Instruction } from './instruction.ts';
import { plainWord, quotedWord } from './words.ts';
import type { Word } from './words.ts';

/** The instruction on one line. */
export const textOf = (instruction: Instruction): string => `${instruction.name} ${restOf(instruction)}`;

function restOf(instruction: Instruction): string {
  switch (instruction.name) {
    case 'FROM':
      return fromText(instruction);
    case 'COPY':
    case 'ADD':
      return copyText(instruction);
    case 'LABEL':
    case 'ENV':
      return instruction.pairs.map(({ key, value }) => `${key}=${quotedWord(value)}`).join(' ');
    case 'ARG':
      return instruction.args
        .map(({ key, value }) => (value === undefined ? key : `${key}=${quotedWord(value)}`))
        .join(' ');
    case 'RUN':
    case 'CMD':
    case 'ENTRYPOINT':
      return commandText(instruction.command);
    case 'HEALTHCHECK':
      return healthText(instruction);
    case 'SHELL':
      return listText(instruction.list);
    case 'VOLUME':
      return listText(instruction.words.map(quotedWord));
    case 'EXPOSE':
      return instruction.words.map(plainWord).join(' ');
    case 'USER':
    case 'STOPSIGNAL':
      return plainWord(instruction.word);
    case 'WORKDIR':
      return quotedWord(instruction.word);
    case 'MAINTAINER':
      return instruction.text;
  }
}

function fromText({ platform, image, stage }: From): string {
  return [platform === '' ? '' : `--platform=${platform} `, image, stage === '' ? '' : ` AS ${stage}`].join('');
}

function copyText({ name, from, chown, sources, destination }: Copy): string {
  const flags = [
    ...(from === '' ? [] : [`--from=${from}`]),
    ...(chown.length === 0 ? [] : [`--chown=${plainWord(chown)}`]),
  ];
  // With `./` before it no source of ADD is an address, whatever its variables were.
  const files = name === 'ADD' ? sources.map(inContext) : sources;
  return [...flags, listText([...files, destination].map(quotedWord))].join(' ');
}

/** A source of ADD as a path below the context. */
export function inContext(source: Word): Word {
  const [first = '', ...more] = source;
  if (typeof first !== 'string') return ['./', ...source];
  return [`./${first.replace(/^(?:\.?\/)+/, '')}`, ...more];
}

const commandText = (command: Command): string => (command.form === 'shell' ? command.text : listText(command.list));

function healthText({ options, command }: HealthCheck): string {
  if (command === undefined) return 'NONE';
  return [...options.map(({ name, value }) => `--${name}=${value}`), 'CMD', commandText(command)].join(' ');
}

/** A list of JSON in plain characters; without `<<`, which newer parsers take for a here-document. */
const listText = (list: readonly string[]): string => `[${list.map(jsonText).join(',')}]`;

const jsonText = (text: string): string =>
  JSON.stringify(text).replaceAll(/[^\x20-\x7E]|</g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`);
