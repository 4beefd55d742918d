/**
 * Renders docs/commands.md, the help of every command as test/fixtures/cli/help/ keeps it, and the output of
 * `longshore completion bash` from the command tree. `npm run generate` writes them; a unit test fails when one is out
 * of date.
 */
import { commandsOf, examplesOf, helpOf, pathOf, wordsOf } from '../cli/command-tree.ts';
import { bashScript } from '../cli/completion/shell.ts';
import { completedCommands } from '../cli/completion/words.ts';
import { REMARKS } from '../cli/remarks.ts';

/** The width of the kept help. */
const COLUMNS = 80;

/**
 * The help of every command, by the name of its file.
 * @param {import('commander').Command} program
 * @returns {Readonly<Record<string, string>>}
 */
export const helpFiles = (program) =>
  Object.fromEntries(
    commandsOf(program).map((command) => [`${pathOf(command).replaceAll(' ', '-')}.txt`, helpOf(command, COLUMNS)]),
  );

/**
 * Renders what `longshore completion bash` prints, as test/fixtures/cli/verbs/completion.txt keeps it.
 * @param {import('commander').Command} program
 * @returns {string}
 */
export const completionFile = (program) => bashScript(completedCommands(program));

/**
 * @param {import('commander').Command} program
 * @returns {string} the whole page
 */
export function commandsPage(program) {
  const commands = commandsOf(program).filter((command) => command !== program);
  return `# Commands

Every command with its arguments, options, remarks and examples, as its \`--help\` has them. What holds for all of them
is in [cli.md](cli.md): exit codes, installations, names, what is packed. \`npm run generate\` writes this page.

Every command takes these options:

${table(program.options)}

${commands.map((command) => section(command)).join('\n')}`;
}

function section(command) {
  const help = command.createHelp();
  const rows = table([...help.visibleArguments(command), ...help.visibleOptions(command)]);
  const remarks = REMARKS[wordsOf(command)] ?? [];
  return [
    `${'#'.repeat(pathOf(command).split(' ').length)} ${pathOf(command)}\n`,
    `${escaped(sentence(command.description()))}\n`,
    ...(command.commands.length > 0 ? [] : [`\`\`\`text\n${help.commandUsage(command)}\n\`\`\`\n`]),
    ...(rows === '' ? [] : [`${rows}\n`]),
    ...remarks.map((remark) => `${linked(escaped(remark))}\n`),
    `\`\`\`sh\n${examplesOf(command).join('\n')}\n\`\`\`\n`,
  ].join('\n');
}

function table(taken) {
  const rows = taken
    .filter((one) => one.long !== '--help')
    .map((one) => [
      one.flags ?? (one.required ? `<${one.name()}${dots(one)}>` : `[${one.name()}${dots(one)}]`),
      meaningOf(one),
    ]);
  if (rows.length === 0) return '';
  return [
    '| | |',
    '|---|---|',
    ...rows.map(([name, meaning]) => `| \`${escaped(name)}\` | ${escaped(meaning)} |`),
  ].join('\n');
}

const dots = (argument) => (argument.variadic ? '...' : '');

function meaningOf({ description, argChoices, defaultValue, mandatory }) {
  const choices = argChoices === undefined ? [] : [argChoices.map((choice) => `\`${choice}\``).join(', ')];
  const byDefault = defaultValue === undefined || defaultValue === false ? [] : [`by default \`${defaultValue}\``];
  return [description, ...choices, ...byDefault, ...(mandatory === true ? ['required'] : [])].join('; ');
}

/** Paths of documents as links: the page is one of them. */
const linked = (text) => text.replaceAll(/\bdocs\/([\w-]+\.md)(#[\w-]+)?/g, '[$1]($1$2)');

const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

/** Bars would end a cell; a name in angle brackets outside of code would count as HTML. */
const escaped = (text) => text.replaceAll('|', String.raw`\|`);
