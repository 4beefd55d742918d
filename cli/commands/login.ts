// `longshore login` and `logout`: the contexts of installations that others run. A token is tried before it is kept.
import { Client } from '../client.ts';
import { checkedUrl, contextFilePath, deleteContext, readContexts, saveContext } from '../context.ts';
import type { Context, ContextFile } from '../context.ts';
import { usageError } from '../errors.ts';
import { textField } from '../json.ts';
import { note, print, printJson } from '../print.ts';
import { askHidden, readStdin } from '../typed.ts';
import { tokenTypeOf } from './token.ts';
import type { Invocation } from './run.ts';

export async function runLogin(given: string | undefined, invocation: Invocation): Promise<void> {
  const { options, env } = invocation;
  const path = contextFilePath(env);
  const file = await readContexts(path);
  const stored = file.contexts[options.context ?? file.current];
  const named = given ?? options.url ?? (env['LONGSHORE_URL'] || stored?.url);
  if (named === undefined) {
    throw usageError('which installation? name its URL: `longshore login https://longshore.example.com`');
  }
  const url = checkedUrl(named);
  const token = options.token ?? (await readToken(url));
  const caFile = options.caFile ?? (env['LONGSHORE_CA_BUNDLE'] || (stored?.url === url ? stored.caFile : undefined));
  const asked = { url, token, workspaceId: '', ...(caFile === undefined ? {} : { caFile }) };
  const workspace = await workspaceOf(asked);
  const name = options.context ?? contextNameFor(url, file, workspace);
  await saveContext(path, name, { ...asked, workspaceId: workspace.id });

  const shown = {
    context: name,
    url,
    workspaceId: workspace.id,
    workspace: workspace.name,
    tokenType: tokenTypeOf(token),
  };
  if (options.json === true) printJson(shown);
  else print(`logged in to ${url}, workspace ${workspace.name || workspace.id}; commands now use the context ${name}`);
  if (url.startsWith('http:') && !/^(127\.|localhost$|\[::1\]$)/.test(new URL(url).hostname)) {
    note('this address is not encrypted: tokens and data can be read on the way (docs/https.md)');
  }
  for (const variable of ['LONGSHORE_URL', 'LONGSHORE_TOKEN']) {
    if (env[variable]) note(`${variable} is set, and wins over the context: unset it to use what was kept now`);
  }
}

/** Forgets a context. The token stays good: `longshore token delete` ends it. */
export async function runLogout({ options, env }: Invocation): Promise<void> {
  const path = contextFilePath(env);
  const { current, contexts } = await readContexts(path);
  const name = options.context ?? current;
  if (options.context === undefined && contexts[current] === undefined) {
    throw usageError('no context is current, so there is nothing to log out of: `longshore context list` shows them');
  }
  const url = contexts[name]?.url ?? '';
  const wasCurrent = await deleteContext(name, env);
  if (options.json === true) printJson({ context: name, url, done: 'logged out' });
  else print(`logged out of ${url}: the context ${name} and its token are forgotten here`);
  if (wasCurrent && Object.keys(contexts).length > 1) {
    note('no context is current now: `longshore context use NAME` chooses one');
  }
}

async function readToken(url: string): Promise<string> {
  const token = (process.stdin.isTTY ? await askHidden(`token for ${url} (not shown): `) : await readStdin()).trim();
  if (token === '')
    throw usageError('no token came: pipe it in (`longshore login URL < token.txt`), or type it when asked');
  if (/\s/.test(token)) throw usageError('a token has no spaces and is one line: pipe in the token alone');
  return token;
}

async function workspaceOf(context: Context): Promise<{ readonly id: string; readonly name: string }> {
  const client = new Client(context);
  try {
    const answer = await client.rest('/workspace/current');
    return { id: textField(answer, 'external_id') || textField(answer, 'id'), name: textField(answer, 'name') };
  } finally {
    await client.close();
  }
}

/**
 * The name of the context of an address and a workspace: that of the context they have already. Else the host's, or
 * the workspace's where the address has a context of another workspace: its token is shown nowhere else. A number
 * follows where another context has that name.
 * @internal exported for its test
 */
export function contextNameFor(
  url: string,
  file: ContextFile,
  workspace: { readonly id: string; readonly name: string },
): string {
  const known = Object.entries(file.contexts).filter(([, context]) => context.url === url);
  const same = known.filter(([, context]) => context.workspaceId === workspace.id || context.workspaceId === '');
  const current = same.find(([name]) => name === file.current) ?? same[0];
  if (current !== undefined) return current[0];
  const host = (known.length > 0 && workspace.name) || new URL(url).hostname.replaceAll(/[[\]]/g, '');
  for (let n = 1; ; n++) {
    const name = n === 1 ? host : `${host}-${n}`;
    if (file.contexts[name] === undefined) return name;
  }
}
