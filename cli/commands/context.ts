// `longshore context`: the installation that commands talk to.
import { Client } from '../client.ts';
import { chooseContext, contextFilePath, deleteContext, readContexts, resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { note, print, printJson, printTable } from '../print.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** Prints the context that commands use; the workspace of a token from the environment is asked for. */
export async function runContextShow(options: GlobalOptions, env: Env): Promise<void> {
  const context = await resolveContext(options, env);
  const client = new Client(context);
  try {
    const { url, token } = context;
    const workspaceId = await client.workspaceId();
    if (options.json === true) return printJson({ url, token, workspaceId });
    // People show each other what this prints.
    const shown = { url, token: '`longshore context token` prints it', workspaceId };
    for (const [name, value] of Object.entries(shown)) print(`${`${name}:`.padEnd(13)}${value}`);
  } finally {
    await client.close();
  }
}

export async function runContextToken(options: GlobalOptions, env: Env): Promise<void> {
  const { token } = await resolveContext(options, env);
  if (options.json === true) printJson({ token });
  else print(token);
}

export async function runContextList(options: GlobalOptions, env: Env): Promise<void> {
  const file = await readContexts(contextFilePath(env));
  const rows = Object.entries(file.contexts).map(([name, context]) => ({
    name,
    current: name === file.current,
    url: context.url,
    workspaceId: context.workspaceId,
  }));
  if (options.json === true) printJson(rows);
  else {
    printTable(
      ['', 'NAME', 'URL', 'WORKSPACE'],
      rows.map((row) => [row.current ? '*' : '', row.name, row.url, row.workspaceId]),
    );
  }
}

export async function runContextUse(name: string, options: GlobalOptions, env: Env): Promise<void> {
  await chooseContext(name, env, options.caFile);
  if (options.json === true) printJson({ context: name, done: 'current' });
  else print(`commands now use the context ${name}`);
}

/** Deletes the context and the token in it; the installation stays as it is. */
export async function runContextDelete(name: string, options: GlobalOptions, env: Env): Promise<void> {
  const wasCurrent = await deleteContext(name, env);
  if (options.json === true) printJson({ context: name, done: 'deleted' });
  else print(`deleted the context ${name}`);
  if (wasCurrent) note('no context is current now: `longshore context use NAME` chooses one');
}
