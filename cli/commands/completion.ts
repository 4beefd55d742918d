// `longshore completion`: a script for the shell, made from the command tree; and the names that it asks for.
import type { Command } from 'commander';
import { sleep } from '#shared/backoff.ts';
import { bashScript, zshScript } from '../completion/shell.ts';
import { fishScript } from '../completion/fish.ts';
import { completedCommands } from '../completion/words.ts';
import type { NameKind } from '../completion/words.ts';
import { contextFilePath, readContexts } from '../context.ts';
import { listField, textField } from '../json.ts';
import { print } from '../print.ts';
import { sharedNames } from '../shared-names.ts';
import { listTemplates } from '../templates.ts';
import { allVolumes } from '../transfer/volume-files.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';

export const SHELLS = ['bash', 'zsh', 'fish'] as const;

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;

/** A person waits for the key; without an answer by then there are no names. */
const DEADLINE_MS = 1_000;

export function runCompletion(shell: (typeof SHELLS)[number], program: Command): void {
  print(SCRIPTS[shell](completedCommands(program)).trimEnd());
}

/** Prints names, one a line. A failure prints nothing: the command line is being typed. */
export async function runNames(kind: NameKind, invocation: Invocation): Promise<void> {
  const ended = new AbortController();
  const none = sleep(DEADLINE_MS, ended.signal).then((): readonly string[] => []);
  const names = await Promise.race([namesOf(kind, invocation).catch((): readonly string[] => []), none]);
  ended.abort();
  for (const name of new Set(names)) if (/^[^\s'"`$\\]+$/.test(name)) print(name);
  // A call that has no answer yet would keep the process.
  if (names.length === 0) process.stdout.write('', () => process.exit(0));
}

async function namesOf(kind: NameKind, invocation: Invocation): Promise<readonly string[]> {
  if (kind === 'templates') return listTemplates().map(({ name }) => name);
  if (kind === 'contexts') return Object.keys((await readContexts(contextFilePath(invocation.env))).contexts);
  return withClient(invocation, async (client) => {
    if (kind === 'volumes') return (await allVolumes(client)).map((volume) => textField(volume, 'name'));
    if (kind === 'maps' || kind === 'queues')
      return (await sharedNames(client, kind === 'maps' ? 'map' : 'queue')).map((one) => textField(one, 'name'));
    if (kind === 'providers')
      return listField(await client.rest('/provider'), 'data').map((item) => textField(item, 'name'));
    const path = kind === 'pools' ? '/pools' : '/deployments?limit=1000';
    return listField(await client.gateway('GET', path), kind).map((item) => textField(item, 'name'));
  });
}
