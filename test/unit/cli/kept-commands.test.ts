// Every command has an output that is kept, or a reason why it has none.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { commandsOf, pathOf } from '#cli/command-tree.ts';
import { buildProgram } from '#cli/program.ts';
import { LISTS, NOT_KEPT, VERBS } from '../../helpers/kept-commands.ts';
import { ROOT } from '../../helpers/repository.ts';

const COMMANDS = commandsOf(buildProgram(() => {}))
  .filter((command) => command.commands.length === 0 || command.name() === 'agent')
  .map((command) => pathOf(command).replace(/^longshore /, ''));

test('every command has an output that is kept, with --json too, or a reason why it has none', () => {
  const lists = COMMANDS.filter((path) => Object.keys(LISTS).some((words) => `${words} `.startsWith(`${path} `)));
  const named = [...lists, ...Object.keys(VERBS), ...Object.keys(NOT_KEPT)];
  expect(COMMANDS.filter((path) => !named.includes(path))).toEqual([]);
  expect(named.filter((path) => !COMMANDS.includes(path))).toEqual([]);
});

test('what is not kept is tested where its reason says', () => {
  const files = Object.values(NOT_KEPT).flatMap((reason) => reason.match(/test\/\S+\.ts/g) ?? []);
  expect(files.filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
});
