// `longshore registry`: credentials for pulling the workspace's images, kept as secrets with
// a name prefix and a shape of their own. The password is read as a secret's value is.
import { REGISTRY_SECRET_PREFIX } from '#shared/api/rest/secrets.ts';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import type { RegistrySetFlags } from '../flags.ts';
import { ageOf } from '../format.ts';
import { listField, textField } from '../json.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { putSecret, readValue, secretsPath } from './secret.ts';

export async function runRegistryList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const nowMs = Date.now();
    const all = listField(await client.rest(await secretsPath(client)), 'data');
    const found = all.filter((secret) => textField(secret, 'name').startsWith(REGISTRY_SECRET_PREFIX));
    showList(invocation, found, ['NAME', 'CHANGED'], (secret) => [
      textField(secret, 'name').slice(REGISTRY_SECRET_PREFIX.length).toLowerCase(),
      `${ageOf(textField(secret, 'updated_at'), nowMs)} ago`,
    ]);
  });
}

export async function runRegistrySet(registry: string, flags: RegistrySetFlags, invocation: Invocation): Promise<void> {
  const name = nameOf(flags.name ?? registry);
  const repositories = flags.repositories.split(',').map((one) => one.trim());
  const password = await readValue(`the password for ${registry}`, flags);
  const value = JSON.stringify({ registry, username: flags.username, password, repositories });
  await withClient(invocation, async (client) => {
    const { secret } = await putSecret(client, name, value);
    showDone(invocation, secret, [
      `images of ${registry} (${repositories.join(', ')}) are pulled as ${flags.username}`,
    ]);
  });
}

export async function runRegistryDelete(registry: string, invocation: Invocation): Promise<void> {
  const name = nameOf(registry);
  await withClient(invocation, async (client: Client) => {
    await client.restCall('DELETE', `${await secretsPath(client)}/${name}`).catch((error: unknown) => {
      if (!(error instanceof CliError) || error.status !== 404) throw error;
      throw new CliError(
        `there are no credentials for ${registry}: \`longshore registry list\` shows those there are`,
        {
          cause: error,
        },
      );
    });
    showDone(invocation, { name, done: 'deleted' }, [
      `deleted the credentials for ${registry}: machines that hold its images ask again within 5 minutes`,
    ]);
  });
}

/** `ghcr.io` → `LONGSHORE_REGISTRY_GHCR_IO`. */
const nameOf = (registry: string): string =>
  `${REGISTRY_SECRET_PREFIX}${registry.toUpperCase().replaceAll(/[^A-Z0-9]/g, '_')}`;
