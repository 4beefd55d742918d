// Every command has an output that is kept, or a reason why it has none; and the help of every command has an example.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { commandsOf, examplesOf, pathOf, wordsOf } from '#cli/command-tree.ts';
import { buildProgram } from '#cli/program.ts';
import { KEPT_BY, LISTS, NOT_KEPT, VERBS } from '../../helpers/kept-commands.ts';
import { ROOT } from '../../helpers/repository.ts';

const KEPT = join(ROOT, 'test/fixtures/cli');
const PROGRAM = buildProgram(() => {});
/** Commands that do something; the others hold those. */
const COMMANDS = commandsOf(PROGRAM)
  .filter((command) => command.commands.length === 0 || command.name() === 'agent')
  .map((command) => wordsOf(command));

const fileOf = (words: string): string => words.replaceAll(' ', '-');
const commandOf = (line: string): string => COMMANDS.find((words) => `${line} `.startsWith(`${words} `)) ?? line;

test('every command is either in a table of kept outputs or has a reason, and no table names another', () => {
  const kept = new Set([...Object.keys(LISTS).map(commandOf), ...Object.keys(VERBS), ...Object.keys(KEPT_BY)]);
  expect(COMMANDS.filter((words) => !kept.has(words) && NOT_KEPT[words] === undefined)).toEqual([]);
  expect(COMMANDS.filter((words) => kept.has(words) && NOT_KEPT[words] !== undefined)).toEqual([]);
  expect([...kept, ...Object.keys(NOT_KEPT)].filter((words) => !COMMANDS.includes(words))).toEqual([]);
});

test('every output of the tables is in a file, as text and with --json, and every file is of one', () => {
  const both = (folder: string, lines: readonly string[]): readonly string[] =>
    lines.flatMap((line) => [`${folder}/${fileOf(line)}.txt`, `${folder}/${fileOf(line)}.json`]);
  const needed = [
    ...both('lists', Object.keys(LISTS)),
    ...both('verbs', Object.keys(VERBS)),
    ...Object.keys(KEPT_BY).map((words) => `verbs/${fileOf(words)}.txt`),
  ];
  const there = ['lists', 'verbs'].flatMap((folder) =>
    readdirSync(join(KEPT, folder)).map((name) => `${folder}/${name}`),
  );
  expect(needed.filter((file) => !there.includes(file))).toEqual([]);
  const known = new Set(Object.keys(KEPT_BY).map((words) => fileOf(words)));
  const extra = there.filter((file) => !needed.includes(file));
  expect(extra.filter((file) => !known.has(file.replaceAll(/^verbs\/|\.\w+$/g, '')))).toEqual([]);
});

test('what another test keeps, or no test keeps, is in the test that the table names', () => {
  const source = (file: string): string => (existsSync(join(ROOT, file)) ? readFileSync(join(ROOT, file), 'utf8') : '');
  const lost = Object.entries(KEPT_BY).filter(([words, file]) => !source(file).includes(`'${words}'`));
  expect(lost).toEqual([]);
  const named = Object.values(NOT_KEPT).map((reason) => /test\/\S+\.ts$/.exec(reason)?.[0] ?? reason);
  expect(named.filter((file) => source(file) === '')).toEqual([]);
});

test('the help of every command has an example', () => {
  const without = commandsOf(PROGRAM).filter((command) => examplesOf(command).length === 0);
  expect(without.map((command) => pathOf(command))).toEqual([]);
});
