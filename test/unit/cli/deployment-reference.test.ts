import { expect, test } from 'vitest';
import type { Client } from '#cli/client.ts';
import { allVersions, oneDeployment, shownDeployment } from '#cli/commands/deployment-reference.ts';

const PAYMENTS = {
  id: 'cafe1234-0000-4000-8000-000000000001',
  name: 'payments',
  stubType: 'endpoint/deployment',
  version: 7,
  active: true,
  serving: true,
  stubId: 's',
};
/** A workspace with one deployment, of another name than those that tests ask for. */
const client = {
  gateway: (_method: string, path: string) =>
    Promise.resolve({ deployments: path.includes('filters') ? [] : [PAYMENTS] }),
} as unknown as Client;

test('a name that is gone never means a deployment by its id where that one would change', async () => {
  await expect(allVersions(client, 'cafe')).rejects.toThrow('no deployment is named cafe');
  await expect(oneDeployment(client, 'cafe')).rejects.toThrow('no deployment is named cafe');
});

test('a command that only reads takes the beginning of an id', async () => {
  expect(await shownDeployment(client, 'cafe')).toMatchObject({ name: 'payments', version: 7 });
  await expect(shownDeployment(client, 'face')).rejects.toThrow('no deployment is named face');
});
