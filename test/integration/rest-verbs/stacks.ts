/** Verbs of images and stacks, and the stop of tasks. */
import { expect } from 'vitest';
import type { Json } from '../verbs-fixture.ts';
import type { Verb } from '../verbs-kit.ts';
import { READS_NOTHING } from './parts.ts';
import type { RestParts } from './parts.ts';

export function stackVerbs(parts: RestParts): readonly Verb[] {
  const { platform, rest, ownId, unique, aTask, statusOf } = parts;
  const aStack = async (): Promise<string> =>
    String((await platform().call(rest('POST /api/v1/stack/{ws}'), { name: unique('stack') })).json['id']);
  const stackNames = async (): Promise<readonly unknown[]> => {
    const { json } = await platform().call(rest('GET /api/v1/stack/{ws}?limit=100'));
    return (json['data'] as Json[]).map((row) => row['name']);
  };
  return [
    {
      name: 'GET /image/{ws}',
      line: (id) => `GET /image/${id}`,
      make: ownId,
      ok: { data: [], next: '' },
      unknown: { status: 401 },
      ...READS_NOTHING,
    },
    // No machine builds an image here.
    ...['GET /image/{ws}/{imageId}', 'GET /image/{ws}/{imageId}/output', 'DELETE /image/{ws}/{imageId}'].map(
      (name): Verb => ({
        name,
        line: (id) => name.replace('{imageId}', id),
        ok: { status: 404 },
        unknown: { status: 404 },
        foreign: { status: 401 },
        ...READS_NOTHING,
      }),
    ),
    {
      name: 'GET /stack/{ws}',
      line: (id) => `GET /stack/${id}`,
      make: ownId,
      ok: { status: 200 },
      unknown: { status: 401 },
      malformed: { line: 'GET /stack/{ws}?cursor=x' },
    },
    {
      name: 'POST /stack/{ws}',
      line: () => 'POST /stack/{ws}',
      body: (id) => ({ name: id }),
      make: async () => unique('stack'),
      ok: { status: 201 },
      foreign: { status: 401 },
      malformed: { body: '{"name": 5}', answer: { status: 422 } },
      done: async (id) => (await stackNames()).includes(id),
    },
    {
      name: 'PUT /stack/{ws}/{stackId}',
      line: (id) => `PUT /stack/{ws}/${id}`,
      body: (id) => ({ name: `renamed-${id}` }),
      make: aStack,
      ok: { status: 200 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { body: '{"add": "x"}', answer: { status: 422 } },
      done: async (id) => (await stackNames()).includes(`renamed-${id}`),
    },
    {
      name: 'DELETE /stack/{ws}/{stackId}',
      line: (id) => `DELETE /stack/{ws}/${id}`,
      make: aStack,
      ok: { status: 200, text: '{}' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async (id) => (await platform().call(rest(`PUT /api/v1/stack/{ws}/${id}`), {})).status === 404,
    },
    {
      name: 'DELETE /task/{ws}',
      line: () => 'DELETE /task/{ws}',
      body: (id) => ({ ids: [id] }),
      make: aTask,
      ok: { status: 200, text: '{}' },
      unknown: { status: 200, text: '{}' },
      foreign: { status: 401 },
      malformed: { body: '{"ids": 5}', answer: { status: 422 } },
      done: async (id) => (await statusOf(id)) === 'CANCELLED',
    },
    {
      name: 'POST /task/{ws}/redrive',
      line: () => 'POST /task/{ws}/redrive',
      body: (id) => ({ ids: [id] }),
      make: aTask,
      ok: { redriven: [] },
      unknown: { status: 200, text: expect.stringContaining('task not found') as string },
      foreign: { status: 401 },
      malformed: { body: '{"ids": 5}', answer: { status: 422 } },
    },
    {
      name: 'DELETE /task/{ws}/dead',
      line: () => 'DELETE /task/{ws}/dead',
      body: (id) => ({ ids: [id] }),
      make: aTask,
      ok: { dropped: [] },
      unknown: { status: 200, text: '{"dropped":[]}' },
      foreign: { status: 401 },
      malformed: { body: '{"ids": 5}', answer: { status: 422 } },
    },
    {
      name: 'POST /task/{ws}/rerun',
      line: (id) => `POST /task/{ws}/rerun?task_ids=${id}&status=CANCELLED`,
      make: async () => {
        const id = await aTask();
        await platform().call(rest('DELETE /api/v1/task/{ws}'), { ids: [id] });
        return id;
      },
      ok: { matched: 1, left_out: 0, next: '' },
      unknown: { status: 200, text: expect.stringContaining('"matched":0') as string },
      foreign: { status: 401 },
    },
    {
      name: 'POST /task/{ws}/cancel',
      line: (id) => `POST /task/{ws}/cancel?task_ids=${id}`,
      make: aTask,
      ok: { matched: 1, more: false, refused: [] },
      unknown: { status: 200, text: expect.stringContaining('"matched":0') as string },
      foreign: { status: 401 },
      done: async (id) => (await statusOf(id)) === 'CANCELLED',
    },
  ];
}
