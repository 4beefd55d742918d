// Writes docs/commands.md, the help of every command (test/fixtures/cli/help/) and the output of `completion bash` from
// the command tree. A unit test fails when a file is out of date.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { buildProgram } from '../cli/program.ts';
import { commandsPage, completionFile, helpFiles } from './commands-page.mjs';

const HELP = 'test/fixtures/cli/help';

const program = buildProgram(() => {});
writeFileSync('docs/commands.md', commandsPage(program));
rmSync(HELP, { recursive: true, force: true });
mkdirSync(HELP, { recursive: true });
for (const [name, text] of Object.entries(helpFiles(program))) writeFileSync(`${HELP}/${name}`, text);
writeFileSync('test/fixtures/cli/verbs/completion.txt', completionFile(program));
