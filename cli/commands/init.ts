// `longshore init`: an app to begin with, copied from a template. Files that are there are never touched.
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { shellWord } from '#shared/shell-word.ts';
import { cannotWrite, usageError } from '../errors.ts';
import { resolveContext } from '../context.ts';
import { PYTHON_MODULES } from '../deploy/describe.ts';
import type { InitFlags } from '../flags.ts';
import { print, printJson } from '../print.ts';
import { listTemplates, starterApp } from '../templates.ts';
import type { TemplateFile } from '../templates.ts';
import { showList } from './run.ts';
import type { Invocation } from './run.ts';

export async function runInit(folder: string | undefined, flags: InitFlags, invocation: Invocation): Promise<void> {
  const templates = listTemplates();
  if (flags.list === true) {
    showList(invocation, templates, ['TEMPLATE', 'SHOWS'], ({ name, shows }) => [name, shows]);
    return;
  }
  if (!templates.some(({ name }) => name === flags.template)) {
    throw usageError(`there is no template ${flags.template}: \`longshore init --list\` shows them`);
  }
  const directory = resolve(folder ?? '.');
  const isHere = directory === process.cwd();
  const app = starterApp(flags.template, isHere ? undefined : deploymentNameOf(basename(directory)));
  await writeNew(directory, app.files);

  const place = folder ?? '.';
  const next = [...(isHere ? [] : [`cd ${shellWord(place)}`]), ...app.tries];
  if (invocation.options.json === true) {
    const files = app.files.map(({ path }) => path);
    printJson({ directory, template: flags.template, deployment: app.deployment ?? null, files, next });
    return;
  }
  print(`made an app of the template ${flags.template} in ${isHere ? 'this folder' : place}:`);
  for (const { path } of app.files) print(`  ${path}`);
  print('\nNext:');
  const { env } = invocation;
  if (next.some((line) => USES_VARIABLES.test(line)) && !(env['LONGSHORE_URL'] && env['LONGSHORE_TOKEN']))
    print(`  ${await variablesLine(invocation)}`);
  if (next.some((line) => line.startsWith('python3 ')) && !env['PYTHONPATH'])
    print(
      `  export PYTHONPATH=${shellWord(PYTHON_MODULES)}  # has the module longshore; docs/install.md installs it by pip`,
    );
  for (const line of next) print(`  ${line}`);
}

const USES_VARIABLES = /\$LONGSHORE_(URL|TOKEN)\b/;

/** Sets the variables that the next steps use, as the current context says; without one, with the usual address. */
async function variablesLine({ options, env }: Invocation): Promise<string> {
  const url = await resolveContext(options, env).then(
    (context) => context.url,
    () => 'http://127.0.0.1:1994',
  );
  return `export LONGSHORE_URL=${url} LONGSHORE_TOKEN=$(longshore context token)`;
}

/** A name of a deployment, as near to the folder's as a name of a host allows. */
const deploymentNameOf = (folder: string): string | undefined =>
  folder
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-+|-+$/g, '')
    .slice(0, 40) || undefined;

/** @throws CliError before anything is written, when a file is there already */
async function writeNew(directory: string, files: readonly TemplateFile[]): Promise<void> {
  const there = files.filter(({ path }) => existsSync(join(directory, path))).map(({ path }) => path);
  if (there.length > 0) {
    throw usageError(
      `${directory} has ${there.join(', ')} already, and nothing was written: name another folder, as in \`longshore init shop\``,
    );
  }
  try {
    for (const { path, content } of files) {
      const target = join(directory, path);
      await mkdir(dirname(target), { recursive: true });
      await writeFile(target, content, { flag: 'wx' });
    }
  } catch (error) {
    throw cannotWrite(directory, error);
  }
}
