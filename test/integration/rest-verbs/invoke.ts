/** Verbs that invoke: every kind of call by every form of its URL. */
import { expect } from 'vitest';
import type { Json } from '../verbs-fixture.ts';
import type { Expected, Verb } from '../verbs-kit.ts';
import type { RestParts } from './parts.ts';

export const UNAUTHORIZED: Expected = { status: 401, text: '{"message":"Unauthorized"}' };
/** The schedule ticks once a year, so that only called tasks run. */
const YEARLY = { extra: '{"when": "@yearly"}' };

export function invokeVerbs({ platform, unique }: RestParts): readonly Verb[] {
  const aName = async (said: Json = {}): Promise<string> => {
    const name = unique('invoked');
    await platform().deploy(name, said);
    return name;
  };
  return [
    ...['taskqueue', 'function', 'schedule'].flatMap((kind): Verb[] => {
      const said = { stubType: `${kind}/deployment`, ...(kind === 'schedule' ? YEARLY : {}) };
      return [
        ...['', '/latest', '/v1'].map((suffix): Verb => ({
          name: `POST /${kind}/{name}${suffix}`,
          line: (name) => `POST /${kind}/${name}${suffix}`,
          make: () => aName(said),
          body: () => ({ n: 1 }),
          ok: { task_id: expect.stringMatching(/^[0-9a-f-]{36}$/) },
          unknown: { status: 400, text: '{"message":"Invalid deployment"}' },
          refused: UNAUTHORIZED,
          malformed: { answer: { error: 'invalid request payload', detail: expect.stringContaining('byte 6') } },
        })),
        {
          name: `POST /${kind}/id/{stubId}`,
          line: (id) => `POST /${kind}/id/${id}`,
          make: () => platform().stub(said),
          ok: { task_id: expect.any(String) },
          unknown: { status: 400, text: '{"message":"Invalid stub"}' },
          foreign: { status: 401, text: '{"message":"Invalid token"}' },
          refused: UNAUTHORIZED,
          malformed: { body: '[1]', answer: { error: 'invalid request payload', detail: expect.any(String) } },
        },
      ];
    }),
    {
      name: 'POST /endpoint/{name}/warmup',
      line: (name) => `POST /endpoint/${name}/warmup`,
      make: () => aName({ stubType: 'endpoint/deployment' }),
      ok: { status: 200, text: '' },
      unknown: { status: 400, text: '{"message":"Invalid deployment"}' },
      refused: UNAUTHORIZED,
      malformed: null,
    },
  ];
}
