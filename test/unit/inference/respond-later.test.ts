// A call that is answered later and whose commit nobody answered: its caller reads the task before a second try.
import type { FastifyReply, FastifyRequest } from 'fastify';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import { InferenceError } from '../../../scheduler/api/http/inference/errors.ts';
import { respondLater } from '../../../scheduler/api/http/inference/respond-later.ts';
import type { LaterCall, RespondLaterParts } from '../../../scheduler/api/http/inference/respond-later.ts';
import { databaseOutcomeUnknown, databaseUnavailable } from '../../../scheduler/stores/store/limits.ts';

/** Sends a call whose acceptance fails with that error. */
async function failing(error: Error, key?: string) {
  const seen = { taskId: '', used: 0, givenBack: 0, released: 0 };
  const parts = {
    log: pino({ level: 'silent' }),
    charging: { reserve: () => Promise.resolve({ kind: 'admitted' }) },
    rates: { take: () => Promise.resolve({ kind: 'taken', headers: {}, used: () => (seen.used += 1) }) },
    deferred: {
      ofKey: () => Promise.resolve(undefined),
      accept: ({ taskId }: { readonly taskId: string }) => {
        seen.taskId = taskId;
        return Promise.reject(error);
      },
    },
    holds: { handOver: () => undefined, giveBack: () => Promise.resolve(void (seen.givenBack += 1)) },
    keptAnswers: {
      claim: () => Promise.resolve({ kind: 'claimed' }),
      release: () => Promise.resolve(void (seen.released += 1)),
    },
    taskUrlOf: (_request: unknown, _workspace: unknown, taskId: string) => `https://here/task/${taskId}`,
    wallMs: () => 1_000,
  } as unknown as RespondLaterParts;
  const prices = { promptMicrosPerMillion: 1, completionMicrosPerMillion: 1, requestMicros: 5 };
  const caller = { workspaceId: 'w' as WorkspaceId, tokenId: 't' as TokenId };
  const call = {
    requestId: 'req_1',
    caller,
    route: 'invoke',
    prepared: {
      model: { name: 'm', type: 'custom', prices, workspaceId: 'other' },
      promptCharacters: 1,
      promptTokens: 0,
    },
    keyed: key === undefined ? undefined : { ...caller, key, fingerprint: 'f' },
  } as unknown as LaterCall;
  const reply = { headers: () => reply } as unknown as FastifyReply;
  const request = { headers: {}, body: new Uint8Array() } as unknown as FastifyRequest;
  const thrown: unknown = await respondLater(call, request, reply, parts).catch((one: unknown) => one);
  return { seen, thrown };
}

test('an unknown outcome names the task, keeps its hold, and forbids clients a second try by themselves', async () => {
  const { seen, thrown } = await failing(databaseOutcomeUnknown());
  expect(thrown).toBeInstanceOf(InferenceError);
  expect(thrown).toMatchObject({
    status: 503,
    code: 'database_outcome_unknown',
    message: expect.stringContaining(seen.taskId) as string,
    headers: {
      'x-task-id': seen.taskId,
      location: `https://here/task/${seen.taskId}`,
      'x-should-retry': 'false',
    },
  });
  expect(seen).toMatchObject({ used: 0, givenBack: 0 });
});

test('with a key, an unknown outcome asks for the same call again, and its key is free for it', async () => {
  const { seen, thrown } = await failing(databaseOutcomeUnknown(), 'k');
  expect(thrown).toMatchObject({ status: 503, headers: { 'x-task-id': seen.taskId, 'retry-after': '1' } });
  expect((thrown as InferenceError).headers).not.toHaveProperty('x-should-retry');
  expect(seen).toMatchObject({ used: 0, givenBack: 0, released: 1 });
});

test('a call that was not accepted gives back its hold and its rate', async () => {
  const { seen } = await failing(databaseUnavailable());
  expect(seen).toMatchObject({ used: 1, givenBack: 1 });
});
