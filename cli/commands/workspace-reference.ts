// The workspace that a command names, for administrators.
import type { Client } from '../client.ts';
import { notFound, usageError } from '../errors.ts';
import { textField } from '../json.ts';
import { workspacesOf } from './workspace.ts';

/** Resolves an id, or a name that only one workspace has; without either, the workspace of the token. */
export async function workspaceIdOf(client: Client, reference?: string): Promise<string> {
  if (reference === undefined) return await client.workspaceId();
  if (/^[0-9a-f]{8}-[0-9a-f-]{27}$/i.test(reference)) return reference;
  const named = (await workspacesOf(client)).filter((workspace) => textField(workspace, 'name') === reference);
  const [only] = named;
  if (only !== undefined && named.length === 1) return textField(only, 'id');
  if (named.length === 0) throw notFound(`there is no workspace ${reference}: \`longshore workspace list\` shows them`);
  throw usageError(
    `${named.length} workspaces are called ${reference}: name it by its id (\`longshore workspace list\`)`,
  );
}
