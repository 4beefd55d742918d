// Input from the person: a value typed without being shown, or what a pipe gives.
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import type { Interface } from 'node:readline';
import { Writable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { messageOf } from '#shared/errors.ts';
import { CliError, usageError } from './errors.ts';
import { EXIT } from './exit-codes.ts';
import { note } from './print.ts';

/** Everything that stdin gives. */
export const readStdin = (): Promise<string> => text(process.stdin);

/**
 * The bytes that an argument names: `@file`, `-` for stdin, else the argument itself.
 * @param what - the argument, for the error
 */
export async function readSource(given: string, what: string): Promise<Buffer> {
  if (given === '-') return buffer(process.stdin);
  if (!given.startsWith('@')) return Buffer.from(given);
  try {
    return await readFile(given.slice(1));
  } catch (error) {
    throw new CliError(`${what}: cannot read ${given.slice(1)} (${messageOf(error)})`, {
      cause: error,
      exitCode: EXIT.usage,
    });
  }
}

/**
 * Asks on stderr, and reads a line whose characters are not shown.
 * @throws CliError after Ctrl-C, or when the terminal ends
 */
export async function askHidden(question: string): Promise<string> {
  process.stderr.write(question);
  const silent = new Writable({ write: (_chunk, _encoding, done) => done() });
  try {
    return await lineFrom(createInterface({ input: process.stdin, output: silent, terminal: true }), '');
  } finally {
    note('');
  }
}

/** Asks on stderr, and reads a line. @throws CliError as {@link askHidden} */
export const ask = (question: string): Promise<string> =>
  lineFrom(createInterface({ input: process.stdin, output: process.stderr, terminal: true }), question);

async function lineFrom(terminal: Interface, question: string): Promise<string> {
  try {
    return await new Promise<string>((resolve, reject) => {
      const stop = (): void => reject(new CliError('stopped: nothing was changed', { exitCode: EXIT.interrupted }));
      terminal.once('SIGINT', stop).once('close', stop).question(question, resolve);
    });
  } finally {
    terminal.close();
  }
}

/** Asks a question whose usual answer is no. */
/**
 * Asks before something goes that cannot be brought back, and refuses without a terminal.
 * @param what - a sentence about the things that would go
 */
export async function confirmDeletion(what: string, question: string): Promise<void> {
  if (!process.stdin.isTTY) throw usageError(`${what}; without a terminal, say --yes: nothing was deleted`);
  if (!(await asksYes(`${what}. ${question}`))) throw new CliError('nothing was deleted');
}

export const asksYes = async (question: string): Promise<boolean> =>
  /^y(es)?$/i.test((await ask(`${question} [y/N] `)).trim());
