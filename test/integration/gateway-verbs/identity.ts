/** Operations of tokens, signatures and the workspace; and of objects and volumes. */
import { expect } from 'vitest';
import { done, refusedWith } from '../verbs-kit.ts';
import type { Kit } from '../verbs-kit.ts';
import { UNAUTHORIZED } from './row.ts';
import type { GatewayVerb } from './row.ts';

const TOKEN = 'tokenId key active reusable workspaceId tokenType createdAt updatedAt';

export function identityVerbs(kit: Kit): readonly GatewayVerb[] {
  const { unique } = kit;
  return [
    {
      name: 'Authorize',
      container: { ok: true, newToken: '', errorMsg: '' },
      line: () => 'POST /auth/authorize',
      fields: 'ok workspaceId newToken errorMsg',
      ok: { ok: true, newToken: '', errorMsg: '' },
      refused: { ok: false, workspaceId: '', newToken: '', errorMsg: 'Invalid token' },
    },
    {
      name: 'SignPayload',
      container: { ok: true, errorMsg: '' },
      line: () => 'POST /auth/sign',
      body: () => ({ payload: 'aGVsbG8=' }),
      fields: 'ok signature timestamp errorMsg',
      ok: {
        ok: true,
        signature: expect.stringMatching(/^[0-9a-f]{64}$/),
        timestamp: expect.stringMatching(/^\d{10}$/),
        errorMsg: '',
      },
      malformed: { body: '{"payload": 5}' },
    },
    {
      name: 'ExportWorkspaceConfig',
      line: () => 'GET /workspace/config',
      fields:
        'gatewayHttpHost gatewayHttpPort gatewayHttpTls gatewayGrpcHost gatewayGrpcPort gatewayGrpcTls workspaceId',
      ok: { gatewayHttpHost: '127.0.0.1', gatewayHttpPort: expect.any(Number), gatewayHttpTls: false },
      restricted: { gatewayHttpHost: '', gatewayHttpPort: 0, workspaceId: '' },
      malformed: null,
    },
    {
      name: 'ListTokens',
      line: () => 'GET /tokens',
      fields: 'ok errMsg tokens',
      records: { tokens: TOKEN },
      restricted: UNAUTHORIZED,
      ok: done,
      malformed: null,
    },
    {
      name: 'CreateToken',
      line: () => 'POST /tokens',
      fields: 'ok errMsg token',
      records: { token: TOKEN },
      restricted: UNAUTHORIZED,
      ok: { ok: true, token: expect.objectContaining({ tokenType: 'workspace', active: true, reusable: true }) },
      malformed: { line: 'POST /tokens?reusable=perhaps' },
      failures: {
        'a type that is not for callers': {
          line: () => 'POST /tokens?tokenType=admin',
          answer: refusedWith('tokenType must be one of workspace, workspace_restricted'),
        },
      },
    },
    {
      name: 'ToggleToken',
      line: (id) => `POST /tokens/${id}/toggle`,
      make: async () => String((await kit.aToken())['tokenId']),
      fields: 'ok errMsg token',
      records: { token: TOKEN },
      restricted: UNAUTHORIZED,
      ok: { ok: true, token: expect.objectContaining({ active: false, key: expect.stringMatching(/^eyJ….{4}$/) }) },
      unknown: refusedWith('Unable to toggle token.'),
      done: async (id) => (await kit.tokenIs(id))?.['active'] === false,
    },
    {
      name: 'DeleteToken',
      line: (id) => `DELETE /tokens/${id}`,
      make: async () => String((await kit.aToken())['tokenId']),
      fields: 'ok errMsg',
      restricted: UNAUTHORIZED,
      ok: done,
      // A token that never existed counts as gone, too; another workspace's token stays.
      unknown: done,
      noId: refusedWith('Unable to delete token.'),
      done: async (id) => (await kit.tokenIs(id)) === undefined,
    },
    {
      name: 'HeadObject',
      // The object is the workspace's, not the container's own.
      container: { ok: true, exists: false, objectId: '' },
      line: (id) => `GET /objects/${id}`,
      make: async () => (await kit.anObject('zip')).hash,
      fields: 'ok exists objectId objectMetadata errorMsg useWorkspaceStorage',
      records: { objectMetadata: 'name size' },
      ok: {
        ok: true,
        exists: true,
        objectMetadata: { name: expect.any(String), size: '3' },
        errorMsg: '',
        useWorkspaceStorage: true,
      },
      unknown: { ok: true, exists: false, objectId: '', objectMetadata: null, useWorkspaceStorage: true },
      malformed: null,
      failures: {
        'announced and not uploaded': {
          make: async () => (await kit.anObject()).hash,
          answer: { ok: true, exists: false, objectId: '', objectMetadata: null, useWorkspaceStorage: true },
        },
      },
    },
    {
      name: 'CreateObject',
      restricted: { ok: false, objectId: '', presignedUrl: '', errorMsg: 'Unauthorized Access' },
      container: { ok: true, errorMsg: '', presignedUrl: expect.stringContaining('/objects/upload/') },
      line: () => 'POST /objects',
      body: () => ({ objectMetadata: { name: 'h', size: '3' }, hash: unique('h'), size: '3', overwrite: true }),
      fields: 'ok objectId presignedUrl errorMsg',
      int64: ['size', 'objectMetadata.size'],
      ok: {
        ok: true,
        objectId: expect.stringMatching(/^[0-9a-f-]{36}$/),
        presignedUrl: expect.stringMatching(/^http:\/\/.*\/objects\/upload\//),
        errorMsg: '',
      },
      malformed: { body: '{"size": "three"}' },
      failures: {
        'known, not to be overwritten': {
          make: async () => (await kit.anObject('zip')).hash,
          body: (hash) => ({ hash, size: 3, overwrite: false }),
          answer: { ok: true, objectId: expect.stringMatching(/^[0-9a-f-]{36}$/), presignedUrl: '', errorMsg: '' },
        },
        'no hash': { body: () => ({ size: 3 }), answer: { ok: false, objectId: '', presignedUrl: '' } },
        'a size below zero': {
          body: () => ({ hash: 'h', size: -1 }),
          answer: { ok: false, errorMsg: expect.stringMatching(/size/) },
        },
      },
    },
    {
      name: 'GetOrCreateVolume',
      container: { ok: false, volume: null, error: 'Unauthorized Access' },
      ours: true,
      line: () => 'POST /volumes',
      body: () => ({ name: 'data', mountPath: './data' }),
      fields: 'ok volume error',
      ok: { ok: true, error: '', volume: expect.objectContaining({ name: 'data' }) },
      malformed: { body: '{"name": ["data"]}' },
      failures: {
        'a name that is none': {
          body: () => ({ name: '../x' }),
          answer: { ok: false, volume: null, error: expect.stringMatching(/^name must be/) },
        },
      },
    },
  ];
}
