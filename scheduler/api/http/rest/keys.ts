import { timestampOf } from '#shared/api/fields.ts';
import { SigningKeyList, SigningKeyRecord } from '#shared/api/rest/signing-keys.ts';
import { AppError } from '#shared/errors.ts';
import { keyIdOf } from '../../../workspaces/identity/jwt.ts';
import { FIRST_KEY } from '../../../workspaces/identity/key-ring.ts';
import type { KeyRing, SigningKeyInfo } from '../../../workspaces/identity/key-ring.ts';
import { tokenOf } from '../auth.ts';
import { actorBehind } from '../origin.ts';
import type { Query } from '../decode.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

/**
 * The keys that tokens are signed with: list them, make a newer one, or end
 * a key together with all tokens that it signed. For the administrator.
 */
export function signingKeyRoutes(ring: Pick<KeyRing, 'list' | 'rotate' | 'retire'>): readonly RestRoute[] {
  return [
    restRoute({
      http: 'GET /signing-key',
      grants: NOT_LIMITED,
      tag: 'installation',
      summary: 'The keys that tokens are signed with (administrator)',
      scope: 'admin',
      answer: SigningKeyList,
      handle: async () => ({ data: (await ring.list()).map(keyRecord), next: '' }),
    }),
    restRoute({
      http: 'POST /signing-key',
      tag: 'installation',
      summary: 'Make a newer one, which signs from now on (administrator)',
      scope: 'admin',
      status: 201,
      answer: SigningKeyRecord,
      handle: async (request) => keyRecord(await ring.rotate(actorBehind(request))),
    }),
    restRoute({
      http: 'DELETE /signing-key/{keyId}',
      // A session does not say by which key its token was signed.
      byTokenOnly: true,
      tag: 'installation',
      summary: 'End a key and every token that it signed (administrator)',
      scope: 'admin',
      answer: SigningKeyRecord,
      errors: ['signing_key_not_found', 'signing_key_in_use'],
      handle: async (request) => {
        const { params, http } = request;
        const id = params['keyId'] ?? '';
        const own = keyIdOf(tokenOf(http.headers.authorization, http.query as Query) ?? '');
        if (own !== undefined && id === (own ?? FIRST_KEY)) {
          throw new AppError(
            'signing_key_in_use',
            'the token of this call was signed with that key: use one that a newer key signed, else you lock yourself out',
          );
        }
        return keyRecord(await ring.retire(id, actorBehind(request)));
      },
    }),
  ];
}

const keyRecord = (key: SigningKeyInfo): SigningKeyRecord => ({
  id: key.id,
  created_at: timestampOf(key.createdAtMs),
  retired_at: key.retiredAtMs === null ? null : timestampOf(key.retiredAtMs),
  signs: key.signs,
  active_tokens: key.activeTokens,
});
