/** Verbs of models and images. No machine builds an image here. */
import type { Json } from '../verbs-fixture.ts';
import type { Verb } from '../verbs-kit.ts';
import { READS_NOTHING } from './parts.ts';
import type { RestParts } from './parts.ts';

export function modelVerbs(parts: RestParts): readonly Verb[] {
  const { platform, rest, ownId, unique } = parts;
  const MODEL = { type: 'chat', backends: [{ kind: 'external', base_url: 'http://127.0.0.1:1/v1' }] };
  const aModel = async (): Promise<string> => {
    const { json } = await platform().call(rest('POST /api/v1/model/{ws}'), { ...MODEL, id: unique('model') });
    return String(json['id']);
  };
  const modelIs = async (id: string): Promise<Json> =>
    (await platform().call(rest(`GET /api/v1/model/{ws}/${id}`))).json;
  return [
    {
      name: 'GET /model/{ws}',
      line: (id) => `GET /model/${id}`,
      make: ownId,
      ok: { status: 200 },
      unknown: { status: 401 },
      malformed: { line: 'GET /model/{ws}?cursor=%21' },
    },
    {
      name: 'POST /model/{ws}',
      line: (id) => `POST /model/${id}`,
      body: () => ({ ...MODEL, id: 'acme/walked' }),
      make: ownId,
      ok: { id: 'acme/walked', type: 'chat', visibility: 'workspace', active: true },
      unknown: { status: 401 },
      malformed: { body: '{"backends": 5}', answer: { status: 422 } },
      done: async () => (await modelIs('acme%2Fwalked'))['type'] === 'chat',
    },
    {
      name: 'GET /model/{ws}/{modelId}',
      line: (id) => `GET /model/{ws}/${id}`,
      make: aModel,
      ok: { type: 'chat', prices: { prompt_micros_per_million: 0 } },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'PATCH /model/{ws}/{modelId}',
      line: (id) => `PATCH /model/{ws}/${id}`,
      body: () => ({ description: 'after', active: false }),
      make: aModel,
      ok: { description: 'after', active: false },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { body: '{"active": "perhaps"}', answer: { status: 422 } },
      done: async (id) => (await modelIs(id))['description'] === 'after',
    },
    {
      name: 'DELETE /model/{ws}/{modelId}',
      line: (id) => `DELETE /model/{ws}/${id}`,
      make: aModel,
      ok: { status: 200 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async (id) => (await modelIs(id))['code'] === 'model_not_found',
    },
  ];
}
