/** Verbs of what apps share and keep: maps, queues, signals, outputs and objects. */
import { expect } from 'vitest';
import { NOBODY } from '../verbs-fixture.ts';
import type { Answer } from '../verbs-fixture.ts';
import type { Verb } from '../verbs-kit.ts';
import { READS_NOTHING } from './parts.ts';
import type { RestParts } from './parts.ts';

export function sharedStateVerbs(parts: RestParts): readonly Verb[] {
  const { platform, rest, unique, aTask, anObject } = parts;
  const entryOf = (key: string) => ({ name: 'm', key, encoding: 'json', value: '1' });
  const anEntry = async (): Promise<string> => {
    const key = unique('key');
    await platform().call(rest('PUT /api/v1/map/{ws}/entry'), entryOf(key));
    return key;
  };
  const entry = (key: string): Promise<Answer> => platform().call(rest(`GET /api/v1/map/{ws}/entry?name=m&key=${key}`));
  const aSharedQueue = async (): Promise<string> => {
    const name = unique('shared');
    await platform().call(rest('POST /api/v1/queue/{ws}'), { name, encoding: 'json', value: '1' });
    return name;
  };
  const sizeOf = async (name: string): Promise<unknown> =>
    (await platform().call(rest(`GET /api/v1/queue/{ws}?name=${name}`))).json['size'];
  const isSet = async (name: string): Promise<boolean> =>
    (await platform().call(rest(`GET /api/v1/signal/{ws}?name=${name}`))).json['set'] === true;
  let outputObject = NOBODY;
  const anOutput = async (): Promise<string> => {
    const body = { task_id: await aTask(), object_id: (await anObject('bytes')).objectId, name: 'a.txt' };
    return String((await platform().call(rest('POST /api/v1/output/{ws}'), body)).json['id']);
  };
  return [
    {
      name: 'PUT /map/{ws}/entry',
      line: () => 'PUT /map/{ws}/entry',
      body: (id) => ({ ...entryOf(id), value: '2' }),
      make: anEntry,
      ok: { status: 200, text: '' },
      foreign: { status: 401 },
      malformed: { body: '{"name": "m", "key": "k", "encoding": "xml", "value": ""}', answer: { status: 422 } },
      done: async (id) => (await entry(id)).json['value'] === '2',
    },
    {
      name: 'GET /map/{ws}/entry',
      line: (id) => `GET /map/{ws}/entry?name=m&key=${id}`,
      make: anEntry,
      ok: { encoding: 'json', value: '1' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: 'GET /map/{ws}/entry?name=m' },
    },
    {
      name: 'GET /map/{ws}/keys',
      line: () => 'GET /map/{ws}/keys?name=m&limit=1',
      make: anEntry,
      ok: { data: [expect.any(String)], count: expect.any(Number) },
      foreign: { status: 401 },
      malformed: { line: 'GET /map/{ws}/keys?name=m&limit=x' },
    },
    {
      name: 'DELETE /map/{ws}/entry',
      line: (id) => `DELETE /map/{ws}/entry?name=m&key=${id}`,
      make: anEntry,
      ok: { status: 200, text: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: 'DELETE /map/{ws}/entry?key=k' },
      done: async (id) => (await entry(id)).status === 404,
    },
    {
      name: 'GET /map/{ws}/names',
      line: () => 'GET /map/{ws}/names?limit=1',
      make: anEntry,
      ok: { data: [{ name: expect.any(String), entries: expect.any(Number), bytes: expect.any(Number) }] },
      foreign: { status: 401 },
      malformed: { line: 'GET /map/{ws}/names?limit=x' },
    },
    {
      name: 'DELETE /map/{ws}',
      line: () => 'DELETE /map/{ws}?name=m',
      make: anEntry,
      ok: { removed: expect.any(Number), complete: true },
      foreign: { status: 401 },
      malformed: { line: 'DELETE /map/{ws}' },
      done: async (id) => (await entry(id)).status === 404,
    },
    {
      name: 'GET /queue/{ws}/names',
      line: () => 'GET /queue/{ws}/names?limit=1',
      make: aSharedQueue,
      ok: { data: [{ name: expect.any(String), entries: expect.any(Number), bytes: expect.any(Number) }] },
      foreign: { status: 401 },
      malformed: { line: 'GET /queue/{ws}/names?limit=x' },
    },
    {
      name: 'DELETE /queue/{ws}',
      line: (id) => `DELETE /queue/{ws}?name=${id}`,
      make: aSharedQueue,
      ok: { removed: 1, complete: true },
      foreign: { status: 401 },
      malformed: { line: 'DELETE /queue/{ws}' },
      done: async (id) => (await sizeOf(id)) === 0,
    },
    {
      name: 'POST /queue/{ws}',
      line: () => 'POST /queue/{ws}',
      body: (id) => ({ name: id, encoding: 'json', value: '1' }),
      make: async () => unique('queue'),
      ok: { status: 200, text: '' },
      foreign: { status: 401 },
      malformed: { body: '{"name": ""}', answer: { status: 422 } },
      done: async (id) => (await sizeOf(id)) === 1,
    },
    {
      name: 'GET /queue/{ws}',
      line: (id) => `GET /queue/{ws}?name=${id}`,
      make: aSharedQueue,
      ok: { size: 1, first: { encoding: 'json', value: '1', expires_at: expect.any(String) } },
      foreign: { status: 401 },
      malformed: { line: 'GET /queue/{ws}' },
    },
    {
      name: 'POST /queue/{ws}/pop',
      line: () => 'POST /queue/{ws}/pop',
      body: (id) => ({ name: id }),
      make: aSharedQueue,
      ok: { item: { encoding: 'json', value: '1', expires_at: expect.any(String) } },
      foreign: { status: 401 },
      malformed: { body: '{"name": 5}', answer: { status: 422 } },
      done: async (id) => (await sizeOf(id)) === 0,
    },
    {
      name: 'PUT /signal/{ws}',
      line: () => 'PUT /signal/{ws}',
      body: (id) => ({ name: id }),
      make: async () => unique('signal'),
      ok: { status: 200, text: '' },
      foreign: { status: 401 },
      malformed: { body: '{"name": "s", "ttl_seconds": 604801}', answer: { status: 422 } },
      done: isSet,
    },
    {
      name: 'GET /signal/{ws}',
      line: (id) => `GET /signal/{ws}?name=${id}`,
      make: async () => unique('signal'),
      ok: { set: false, revision: 0 },
      foreign: { status: 401 },
      malformed: { line: 'GET /signal/{ws}' },
    },
    {
      name: 'DELETE /signal/{ws}',
      line: (id) => `DELETE /signal/{ws}?name=${id}`,
      make: async () => {
        const name = unique('signal');
        await platform().call(rest('PUT /api/v1/signal/{ws}'), { name });
        return name;
      },
      ok: { status: 200, text: '' },
      foreign: { status: 401 },
      malformed: { line: 'DELETE /signal/{ws}' },
      done: async (id) => !(await isSet(id)),
    },
    {
      name: 'POST /output/{ws}',
      line: () => 'POST /output/{ws}',
      body: (id) => ({ task_id: id, object_id: outputObject, name: 'a.txt' }),
      make: async () => {
        outputObject = (await anObject('bytes')).objectId;
        return aTask();
      },
      ok: { status: 201 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { body: '{"task_id": 5}', answer: { status: 422 } },
    },
    {
      name: 'GET /output/{ws}/{outputId}/url',
      line: (id) => `GET /output/{ws}/${id}/url`,
      make: anOutput,
      ok: { name: 'a.txt', size: 5 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: `GET /output/{ws}/${NOBODY}/url?expires_in=604801` },
    },
    {
      name: 'GET /object/{ws}/{objectId}/download-url',
      line: (id) => `GET /object/{ws}/${id}/download-url`,
      make: async () => (await anObject('bytes')).objectId,
      ok: { status: 200 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
  ];
}
