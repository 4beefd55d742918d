// Secrets for published clients. A value is shown only where the operator allows it, and each reading is in the trail.
import { Done, timestampOf } from '#shared/api/fields.ts';
import {
  CreateSecretRequest,
  CreateSecretResponse,
  GetSecretResponse,
  ListSecretsResponse,
  SecretNameRequest,
  UpdateSecretRequest,
} from '#shared/api/secrets.ts';
import type { Secret } from '#shared/api/secrets.ts';
import { NoFields } from '#shared/api/volume-files.ts';
import type { SecretRow } from '../../../stores/store/queries/secrets.ts';
import { actorOf } from '../../../workspaces/events/audit.ts';
import type { Secrets } from '../../../workspaces/secrets/service.ts';
import { unrouted } from '../../operations/operation.ts';
import type { UnroutedOperation } from '../../operations/operation.ts';

export interface SecretOperationParts {
  readonly secrets: Pick<Secrets, 'list' | 'create' | 'change' | 'delete' | 'read'>;
  readonly settings: { readonly grpc: { readonly secretValues: 'hidden' | 'full' } };
}

const NO_HOSTS =
  'hosts is not taken: containers get the value itself, whatever hosts they call. Leave it out, and limit the network with allow_list';
const HIDDEN =
  'values of secrets are not shown: containers alone get them. An administrator may allow it: LONGSHORE_SECRET_VALUES=full';
const OK = { ok: true, errMsg: '' } as const;

export const secretOperations = (parts: SecretOperationParts): readonly UnroutedOperation[] => [
  unrouted({
    name: 'ListSecrets',
    scope: 'full',
    request: NoFields,
    response: ListSecretsResponse,
    handle: async ({ workspaceId }) => ({
      ...OK,
      secrets: (await parts.secrets.list(workspaceId)).map((row) => secretOf(row)),
    }),
  }),
  unrouted({
    name: 'CreateSecret',
    scope: 'full',
    request: CreateSecretRequest,
    response: CreateSecretResponse,
    handle: async (caller, { name, value, hosts }, { from }) => {
      if (hosts.length > 0) return { ok: false, errMsg: NO_HOSTS, id: '', name: '' };
      const row = await parts.secrets.create(caller.workspaceId, name, value, actorOf(caller, from));
      return { ...OK, id: row.id, name: row.name };
    },
  }),
  unrouted({
    name: 'UpdateSecret',
    scope: 'full',
    request: UpdateSecretRequest,
    response: Done,
    handle: async (caller, { name, value, hosts }, { from }) => {
      if (hosts.length > 0) return { ok: false, errMsg: NO_HOSTS };
      await parts.secrets.change(caller.workspaceId, name, value, actorOf(caller, from));
      return OK;
    },
  }),
  unrouted({
    name: 'DeleteSecret',
    scope: 'full',
    request: SecretNameRequest,
    response: Done,
    handle: async (caller, { name }, { from }) => {
      await parts.secrets.delete(caller.workspaceId, name, actorOf(caller, from));
      return OK;
    },
  }),
  unrouted({
    name: 'GetSecret',
    scope: 'full',
    request: SecretNameRequest,
    response: GetSecretResponse,
    handle: async (caller, { name }, { from }) => {
      if (parts.settings.grpc.secretValues !== 'full') return { ok: false, errMsg: HIDDEN, secret: null };
      const { row, value } = await parts.secrets.read(caller.workspaceId, name, actorOf(caller, from));
      return { ...OK, secret: secretOf(row, value) };
    },
  }),
];

const secretOf = ({ id, name, createdAtMs, updatedAtMs }: SecretRow, value = ''): Secret => ({
  id,
  name,
  value,
  createdAt: timestampOf(createdAtMs),
  updatedAt: timestampOf(updatedAtMs),
});
