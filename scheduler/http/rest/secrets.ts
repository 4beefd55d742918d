import { timestampOf } from '#shared/api/fields.ts';
import type { Secrets } from '../../secrets/service.ts';
import type { SecretRow } from '../../store/queries/secrets.ts';
import { textBody } from './rest.ts';
import type { RestRoute } from './rest.ts';

/** Names and times; values go in and never come out. */
export function secretRoutes(secrets: Pick<Secrets, 'list' | 'create' | 'change' | 'delete'>): readonly RestRoute[] {
  return [
    {
      http: 'GET /secret/{ws}',
      scope: 'full',
      handle: async ({ workspaceId }) => ({ data: (await secrets.list(workspaceId)).map(secretRecord), next: '' }),
    },
    {
      http: 'POST /secret/{ws}',
      scope: 'full',
      status: 201,
      handle: async ({ workspaceId, body }) =>
        secretRecord(await secrets.create(workspaceId, textBody(body, 'name'), textBody(body, 'value'))),
    },
    {
      http: 'PUT /secret/{ws}/{name}',
      scope: 'full',
      handle: async ({ workspaceId, params, body }) =>
        secretRecord(await secrets.change(workspaceId, params['name'] ?? '', textBody(body, 'value'))),
    },
    {
      http: 'DELETE /secret/{ws}/{name}',
      scope: 'full',
      handle: async ({ workspaceId, params }) => secrets.delete(workspaceId, params['name'] ?? ''),
    },
  ];
}

const secretRecord = (row: SecretRow) => ({
  id: row.id,
  external_id: row.id,
  name: row.name,
  created_at: timestampOf(row.createdAtMs),
  updated_at: timestampOf(row.updatedAtMs),
});
