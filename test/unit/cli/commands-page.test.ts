// Files that are made from the command tree: docs/commands.md, the help of every command as it is printed, and the
// output of `longshore completion bash`.
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { expect, test } from 'vitest';
import { buildProgram } from '#cli/program.ts';
import { ROOT } from '../../helpers/repository.ts';

// Plain JavaScript, so that its types are said here.
const PAGE: string = join(ROOT, 'scripts/commands-page.mjs');
const { commandsPage, completionFile, helpFiles } = (await import(PAGE)) as {
  commandsPage: (program: Command) => string;
  completionFile: (program: Command) => string;
  helpFiles: (program: Command) => Readonly<Record<string, string>>;
};
const HELP = join(ROOT, 'test/fixtures/cli/help');
const COMPLETION = join(ROOT, 'test/fixtures/cli/verbs/completion.txt');
const program = buildProgram(() => {});

test('docs/commands.md has the commands as they are (else: npm run generate)', () => {
  expect(readFileSync(join(ROOT, 'docs/commands.md'), 'utf8')).toBe(commandsPage(program));
});

test('the help of every command is the one that is kept (else: npm run generate)', () => {
  const kept = readdirSync(HELP).map((name) => [name, readFileSync(join(HELP, name), 'utf8')] as const);
  expect(Object.fromEntries(kept)).toEqual(helpFiles(program));
});

test("the output of 'completion' for bash is the one that is kept (else: npm run generate)", () => {
  expect(readFileSync(COMPLETION, 'utf8')).toBe(completionFile(program));
});
