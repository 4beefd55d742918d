// The workspace that a command names, for administrators.
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { listField, textField } from '../json.ts';
import { onlyAdmin } from './workspace.ts';

/** Resolves an id, or a name that only one workspace has. */
export async function workspaceIdOf(client: Client, reference: string): Promise<string> {
  if (/^[0-9a-f]{8}-[0-9a-f-]{27}$/i.test(reference)) return reference;
  const answer = await client.rest('/workspace?limit=1000').catch(onlyAdmin);
  const named = listField(answer, 'data').filter((workspace) => textField(workspace, 'name') === reference);
  const [only] = named;
  if (only !== undefined && named.length === 1) return textField(only, 'id');
  throw new CliError(
    named.length === 0
      ? `there is no workspace ${reference}: \`longshore workspace list\` shows them`
      : `${named.length} workspaces are called ${reference}: name it by its id (\`longshore workspace list\`)`,
  );
}
