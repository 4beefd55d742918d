// Maps and queues that programs of a workspace share: their paths and names.
import type { Client } from './client.ts';
import { listField } from './json.ts';
import type { JsonObject } from './json.ts';
import { pagesOf } from './pages.ts';

export type SharedKind = 'map' | 'queue';

/** Names of one request. */
const PAGE = 1_000;

/** Path of a route of the kind, `/map/WORKSPACE/entry?name=…`. */
export async function sharedPath(
  client: Client,
  kind: SharedKind,
  route: string,
  query: Readonly<Record<string, string>> = {},
): Promise<string> {
  const asked = new URLSearchParams(query).toString();
  return `/${kind}/${await client.workspaceId()}${route}${asked === '' ? '' : `?${asked}`}`;
}

/** Maps or queues that have something. */
export async function sharedNames(client: Client, kind: SharedKind): Promise<readonly JsonObject[]> {
  const found: JsonObject[] = [];
  const path = (cursor: string) => sharedPath(client, kind, '/names', { limit: String(PAGE), cursor });
  for await (const page of pagesOf(`the ${kind}s of this workspace`, async (cursor) => client.rest(await path(cursor))))
    found.push(...listField(page, 'data'));
  return found;
}
