// `longshore workspace`: tenants of the installation; for its administrator.
import { shellWord } from '#shared/shell-word.ts';
import { isRecord } from '#shared/json.ts';
import type { Client } from '../client.ts';
import { CliError, TokenKindError } from '../errors.ts';
import { ageOf } from '../format.ts';
import { listField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { pagesOf } from '../pages.ts';
import { note, print, printJson } from '../print.ts';
import { programName } from '../program-name.ts';
import { showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { shareText } from './share-text.ts';

/** Creates a workspace and prints its first token alone on stdout. */
export async function runWorkspaceCreate(name: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const same = (await workspacesOf(client)).find((workspace) => textField(workspace, 'name') === name);
    // Commands would have to name both by their ids.
    if (same !== undefined && textField(same, 'deleting_at') !== '')
      throw new CliError(
        `the workspace ${name} from before is still being deleted: \`longshore workspace delete ${shellWord(name)} --dry-run\` shows how far it is`,
      );
    if (same !== undefined)
      throw new CliError(
        `there is a workspace ${name} already (${textField(same, 'external_id')}): choose another name, or \`longshore token create --workspace ${textField(same, 'external_id')}\` makes another token of it`,
      );
    const made = await client.restCall('POST', '/workspace', { name }).catch(onlyAdmin);
    if (invocation.options.json === true) {
      printJson(made);
      return;
    }
    const workspace = inner(made);
    const id = textField(workspace, 'external_id') || textField(workspace, 'id');
    const token = textField(made, 'token') || textField(made, 'newToken') || textField(workspace, 'token');
    note(`workspace ${textField(workspace, 'name') || name} (${id}); its token is shown this once: keep it`);
    print(token);
    note(`keep it: ${programName(invocation.env)} login ${client.context.url} asks for the token`);
    note(`use it once: LONGSHORE_URL=${client.context.url} LONGSHORE_TOKEN=… ${programName(invocation.env)} status`);
  });
}

export async function runWorkspaceList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const workspaces = await workspacesOf(client);
    const nowMs = Date.now();
    showList(invocation, workspaces, ['ID', 'NAME', 'CREATED', 'STATE', 'SHARE'], (workspace) => [
      textField(workspace, 'external_id') || textField(workspace, 'id'),
      textField(workspace, 'name') || '-',
      `${ageOf(textField(workspace, 'created_at'), nowMs)} ago`,
      textField(workspace, 'deleting_at') === '' ? 'active' : 'deleting',
      shareText(objectField(workspace, 'share')) || '-',
    ]);
  });
}

/** All workspaces, the newest first. @throws TokenKindError when the token is no administrator's */
export async function workspacesOf(client: Client): Promise<readonly JsonObject[]> {
  const workspaces: JsonObject[] = [];
  const read = (cursor: string): Promise<JsonObject> =>
    client.rest(`/workspace?${new URLSearchParams({ limit: '100', cursor }).toString()}`).catch(onlyAdmin);
  for await (const page of pagesOf('the workspaces', read)) workspaces.push(...listField(page, 'data'));
  return workspaces;
}

function inner(made: JsonObject): JsonObject {
  const { workspace } = made;
  return isRecord(workspace) ? workspace : made;
}

/** Turns a refused token into a hint that only administrators may do this. */
export function onlyAdmin(error: unknown): never {
  throw error instanceof TokenKindError ? new TokenKindError('admin', { cause: error }) : error;
}
