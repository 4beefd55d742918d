import { timestampOf } from '#shared/api/fields.ts';
import { ChangeSecret, CreateSecret, SecretList, SecretRecord } from '#shared/api/rest/secrets.ts';
import type { Secrets } from '../../../workspaces/secrets/service.ts';
import type { SecretRow } from '../../../stores/store/queries/secrets.ts';
import { actorBehind } from '../origin.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

/** Routes of secrets: they show names and times, and never a value. */
export function secretRoutes(secrets: Pick<Secrets, 'list' | 'create' | 'change' | 'delete'>): readonly RestRoute[] {
  return [
    restRoute({
      http: 'GET /secret/{ws}',
      grants: NOT_LIMITED,
      summary: 'Secrets by name, without their values',
      scope: 'full',
      answer: SecretList,
      handle: async ({ workspaceId }) => ({ data: (await secrets.list(workspaceId)).map(secretRecord), next: '' }),
    }),
    restRoute({
      http: 'POST /secret/{ws}',
      summary: 'Make a secret, which stubs may name',
      scope: 'full',
      status: 201,
      body: CreateSecret,
      answer: SecretRecord,
      errors: ['secret_exists'],
      handle: async (request) => {
        const { workspaceId, body } = request;
        return secretRecord(await secrets.create(workspaceId, body.name, body.value, actorBehind(request)));
      },
    }),
    restRoute({
      http: 'PUT /secret/{ws}/{name}',
      summary: 'Change the value, for containers that start from now on',
      scope: 'full',
      body: ChangeSecret,
      answer: SecretRecord,
      errors: ['secret_not_found'],
      handle: async (request) => {
        const { workspaceId, params, body } = request;
        return secretRecord(await secrets.change(workspaceId, params['name'] ?? '', body.value, actorBehind(request)));
      },
    }),
    restRoute({
      http: 'DELETE /secret/{ws}/{name}',
      summary: 'Delete a secret',
      scope: 'full',
      errors: ['secret_not_found'],
      handle: async (request) => {
        const { workspaceId, params } = request;
        await secrets.delete(workspaceId, params['name'] ?? '', actorBehind(request));
        return undefined;
      },
    }),
  ];
}

const secretRecord = (row: SecretRow): SecretRecord => ({
  id: row.id,
  external_id: row.id,
  name: row.name,
  created_at: timestampOf(row.createdAtMs),
  updated_at: timestampOf(row.updatedAtMs),
});
