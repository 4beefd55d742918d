import { timestampOf } from '#shared/api/fields.ts';
import { AppError } from '#shared/errors.ts';
import { keyIdOf } from '../../identity/jwt.ts';
import { FIRST_KEY } from '../../identity/key-ring.ts';
import type { KeyRing, SigningKeyInfo } from '../../identity/key-ring.ts';
import { tokenOf } from '../auth.ts';
import type { RestRoute } from './rest.ts';

/** The keys that tokens are signed with: list, make a newer one, end one together with all that it signed. For the administrator. */
export function signingKeyRoutes(ring: Pick<KeyRing, 'list' | 'rotate' | 'retire'>): readonly RestRoute[] {
  return [
    {
      http: 'GET /signing-key',
      scope: 'admin',
      handle: async () => ({ data: (await ring.list()).map(keyRecord), next: '' }),
    },
    { http: 'POST /signing-key', scope: 'admin', status: 201, handle: async () => keyRecord(await ring.rotate()) },
    {
      http: 'DELETE /signing-key/{keyId}',
      scope: 'admin',
      handle: async ({ params, query, http }) => {
        const id = params['keyId'] ?? '';
        const own = keyIdOf(tokenOf(http.headers.authorization, query) ?? '');
        if (own !== undefined && id === (own ?? FIRST_KEY)) {
          throw new AppError(
            'signing_key_in_use',
            'the token of this call was signed with that key: use one that a newer key signed, else you lock yourself out',
          );
        }
        return keyRecord(await ring.retire(id));
      },
    },
  ];
}

const keyRecord = (key: SigningKeyInfo) => ({
  id: key.id,
  created_at: timestampOf(key.createdAtMs),
  retired_at: key.retiredAtMs === null ? null : timestampOf(key.retiredAtMs),
  signs: key.signs,
  active_tokens: key.activeTokens,
});
