// Stores a first start's result in the person's context file: the installation's URL, workspace and admin
// token. The scheduler makes the token once and keeps only its hash, so this file holds the only copy.
import { resolve } from 'node:path';
import { Client } from '../client.ts';
import { contextFilePath, readContexts, saveContext } from '../context.ts';
import type { Context, ContextFile } from '../context.ts';
import { CliError } from '../errors.ts';
import { textField } from '../json.ts';
import type { SupervisedChild } from './child.ts';

type Env = Readonly<Record<string, string | undefined>>;

const IPC_TIMEOUT_MS = 20_000;

/**
 * Has the scheduler make the first workspace, once. Nothing is stored yet: a start that
 * fails later must not redirect the commands away from the installation that they use now.
 * @returns the context of a workspace made now; the scheduler then knows no machine either. undefined: it was there
 * @throws CliError when the context file cannot be read, or the scheduler does not answer
 */
export async function makeFirstWorkspace(
  scheduler: SupervisedChild,
  url: string,
  env: Env,
): Promise<Context | undefined> {
  await readContexts(contextFilePath(env));
  return contextOf(await scheduler.request({ kind: 'ensureFirstWorkspace' }, IPC_TIMEOUT_MS), url, env);
}

/**
 * The CA file to keep with the context of an https URL: the one this start was told to
 * trust, else the context's own, else the certificate that its scheduler was given.
 */
export function caFileOf(url: string, env: Env, stored?: Pick<Context, 'caFile'>): Pick<Context, 'caFile'> {
  const file = env['LONGSHORE_CA_BUNDLE'] || stored?.caFile || env['LONGSHORE_HTTP_TLS_CERT'];
  return url.startsWith('https:') && file ? { caFile: resolve(file) } : {};
}

/**
 * Saves the context of an installation that is up, and makes it the current one.
 * @param made - the context of a workspace that this start made
 * @throws CliError when the workspace is there but its token is not, or the file cannot be written
 */
export async function keepContext(
  scheduler: SupervisedChild,
  url: string,
  made: Context | undefined,
  env: Env,
): Promise<Context> {
  const path = contextFilePath(env);
  const file = await readContexts(path);
  if (made !== undefined) return keep(path, file, freeName(file), made);
  const known = await findKnown(file, url, env);
  if (known !== undefined) return keep(path, file, known.name, known.context);
  // The file was lost, or an earlier start ended between making the token and storing it: ask for another one.
  const again = await scheduler.request({ kind: 'ensureFirstWorkspace', issueToken: true }, IPC_TIMEOUT_MS);
  const issued = contextOf(again, url, env);
  if (issued !== undefined) return keep(path, file, freeName(file), issued);
  throw new CliError(
    `the installation has a workspace, but ${path} holds no token for it: put that file back, or name it with LONGSHORE_CONTEXT_FILE`,
  );
}

function contextOf(answer: Readonly<Record<string, unknown>>, url: string, env: Env): Context | undefined {
  const token = textField(answer, 'token');
  return token === ''
    ? undefined
    : { url, token, workspaceId: textField(answer, 'workspaceId'), ...caFileOf(url, env) };
}

/** The stored context whose token this scheduler accepts; contexts for the same address are tried first. */
async function findKnown(
  file: ContextFile,
  url: string,
  env: Env,
): Promise<{ readonly name: string; readonly context: Context } | undefined> {
  const likely = Object.entries(file.contexts)
    .filter(([name, context]) => name.startsWith('local') || context.url === url)
    .toSorted(([, a], [, b]) => Number(b.url === url) - Number(a.url === url));
  for (const [name, stored] of likely) {
    // The empty workspace makes the client ask the scheduler for the token's own.
    const trust = caFileOf(url, env, stored);
    const client = new Client({ url, token: stored.token, workspaceId: '', ...trust });
    try {
      return { name, context: { url, token: stored.token, workspaceId: await client.workspaceId(), ...trust } };
    } catch {
      // The token belongs to another installation.
    } finally {
      await client.close();
    }
  }
  return undefined;
}

async function keep(path: string, file: ContextFile, name: string, context: Context): Promise<Context> {
  const stored = file.contexts[name];
  const isSame = stored?.url === context.url && stored.token === context.token && stored.caFile === context.caFile;
  if (!isSame || file.current !== name) await saveContext(path, name, context);
  return context;
}

/**
 * A free name: `local`, else `local-2` and so on. Another installation's
 * context is never overwritten: its token exists nowhere else.
 */
function freeName(file: ContextFile): string {
  for (let n = 1; ; n++) {
    const name = n === 1 ? 'local' : `local-${n}`;
    if (file.contexts[name] === undefined) return name;
  }
}
