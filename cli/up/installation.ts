// What a first start leaves in the person's context file: the installation's URL, workspace and admin token. The scheduler makes the token
// once and does not keep it, so this is where it lives from then on.
import { contextFilePath, readContexts, saveContext } from '../context.ts';
import type { Context, ContextFile } from '../context.ts';
import { CliError } from '../errors.ts';
import { textField } from '../json.ts';
import type { SupervisedChild } from './child.ts';

type Env = Readonly<Record<string, string | undefined>>;

const IPC_TIMEOUT_MS = 20_000;

/**
 * Has the scheduler make the first workspace (once), and gives the context to talk to it, saved.
 * @throws CliError when the workspace is there but its token is not, or the file cannot be written
 */
export async function openInstallation(scheduler: SupervisedChild, url: string, env: Env): Promise<Context> {
  const path = contextFilePath(env);
  const answer = await scheduler.request({ kind: 'ensureFirstWorkspace' }, IPC_TIMEOUT_MS);
  const workspaceId = textField(answer, 'workspaceId');
  const file = await readContexts(path);
  const known = Object.entries(file.contexts).find(([, context]) => context.workspaceId === workspaceId);
  let token = answer['token'];
  if (typeof token !== 'string' && known === undefined) {
    // The file was lost, or an earlier start was killed between making the token and keeping it: ask for another one.
    token = (await scheduler.request({ kind: 'ensureFirstWorkspace', issueToken: true }, IPC_TIMEOUT_MS))['token'];
  }
  const usable = typeof token === 'string' ? token : known?.[1].token;
  if (usable === undefined) {
    throw new CliError(
      `the installation has a workspace, but ${path} holds no token for it: put that file back, or name it with LONGSHORE_CONTEXT_FILE`,
    );
  }
  const context = { url, token: usable, workspaceId };
  const name = known?.[0] ?? freeName(file);
  const stored = file.contexts[name];
  if (file.current !== name || stored?.url !== url || stored.token !== usable) await saveContext(path, name, context);
  return context;
}

/** `local`, else `local-2` and so on: a context of another installation is not overwritten, its token exists nowhere else. */
function freeName(file: ContextFile): string {
  for (let n = 1; ; n++) {
    const name = n === 1 ? 'local' : `local-${n}`;
    if (file.contexts[name] === undefined) return name;
  }
}
