/** Verbs of secrets and tokens. */
import type { Json } from '../verbs-fixture.ts';
import type { Verb } from '../verbs-kit.ts';
import { READS_NOTHING } from './parts.ts';
import type { RestParts } from './parts.ts';

export function accessVerbs(parts: RestParts): readonly Verb[] {
  const { platform, rest, ownId, unique } = parts;
  const secretsOf = async (): Promise<Json[]> =>
    (await platform().call(rest('GET /api/v1/secret/{ws}'))).json['data'] as Json[];
  const aSecret = async (): Promise<string> => {
    const name = unique('SECRET_').replace('-', '');
    await platform().call(rest('POST /api/v1/secret/{ws}'), { name, value: 'first' });
    return name;
  };

  const tokensNow = async (): Promise<Json[]> =>
    (await platform().call(rest('GET /api/v1/token/{ws}'))).json['data'] as Json[];
  const aTokenId = async (): Promise<string> =>
    String((await platform().call(rest('POST /api/v1/token/{ws}'), {})).json['id']);
  const sessionsNow = async (): Promise<readonly Json[]> =>
    (await platform().call(rest('GET /api/v1/console/sessions/{ws}'))).json['data'] as Json[];
  const aSessionId = async (): Promise<string> => {
    const begun = await platform().call('POST /console/session', { token: platform().own.token }, { token: '' });
    return String(begun.json['id']);
  };
  return [
    {
      name: 'GET /secret/{ws}',
      line: (id) => `GET /secret/${id}`,
      make: ownId,
      ok: { status: 200 },
      unknown: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'POST /secret/{ws}',
      line: () => 'POST /secret/{ws}',
      body: (id) => ({ name: id, value: 'v' }),
      make: async () => unique('MADE_').replace('-', ''),
      ok: { status: 201 },
      foreign: { status: 401 },
      malformed: { body: '{"name": 5}', answer: { status: 422 } },
      done: async (id) => (await secretsOf()).some((row) => row['name'] === id),
    },
    {
      name: 'PUT /secret/{ws}/{name}',
      line: (id) => `PUT /secret/{ws}/${id}`,
      body: () => ({ value: 'second' }),
      make: aSecret,
      ok: { status: 200 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { body: '{"value": ["x"]}', answer: { status: 422 } },
    },
    {
      name: 'DELETE /secret/{ws}/{name}',
      line: (id) => `DELETE /secret/{ws}/${id}`,
      make: aSecret,
      ok: { status: 200, text: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async (id) => !(await secretsOf()).some((row) => row['name'] === id),
    },
    {
      name: 'GET /token/{ws}',
      line: (id) => `GET /token/${id}`,
      make: ownId,
      ok: { status: 200 },
      unknown: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'GET /console/sessions/{ws}',
      line: (id) => `GET /console/sessions/${id}`,
      make: ownId,
      ok: { next: '' },
      unknown: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'DELETE /console/sessions/{ws}/{sessionId}',
      line: (id) => `DELETE /console/sessions/{ws}/${id}`,
      make: aSessionId,
      ok: { status: 200, text: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async (id) => !(await sessionsNow()).some((row) => row['id'] === id),
    },
    {
      name: 'POST /token/{ws}',
      line: () => 'POST /token/{ws}',
      body: (id) => ({ name: id }),
      make: async () => unique('token'),
      ok: { status: 201 },
      foreign: { status: 401 },
      malformed: { body: '{"name": 5}', answer: { status: 422 } },
      done: async (id) => (await tokensNow()).some((row) => row['name'] === id),
    },
    {
      name: 'PATCH /token/{ws}/{tokenId}',
      line: (id) => `PATCH /token/{ws}/${id}`,
      body: () => ({ name: 'changed' }),
      make: aTokenId,
      ok: { name: 'changed' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { body: '{"scopes": "read"}', answer: { status: 422 } },
      done: async (id) => (await tokensNow()).some((row) => row['id'] === id && row['name'] === 'changed'),
    },
    {
      name: 'DELETE /token/{ws}/{tokenId}',
      line: (id) => `DELETE /token/{ws}/${id}`,
      make: aTokenId,
      ok: { status: 200, text: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async (id) => !(await tokensNow()).some((row) => row['id'] === id),
    },
  ];
}
