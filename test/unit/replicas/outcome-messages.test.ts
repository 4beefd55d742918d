import { expect, test } from 'vitest';
import type { LockToken, TaskId } from '#shared/domain/ids.ts';
import { outcomes } from '#scheduler/api/http/invoke/outcomes.ts';
import type { Ending } from '#scheduler/domain/endings.ts';
import * as endings from '#scheduler/domain/endings.ts';
import type { AnswerMessage } from '#scheduler/replicas/outcome-messages.ts';
import { answerMessage, readAnswer, readRevoke, revokeMessage } from '#scheduler/replicas/outcome-messages.ts';

const task = 't' as TaskId;
const lock = 'l' as LockToken;
const sent = <T>(message: T): T => JSON.parse(JSON.stringify(message)) as T;
const statusOf = ({ status, reason }: ReturnType<typeof readAnswer>['finished']) =>
  outcomes.httpStatusOf(status, reason);

test('a replica of the version before finds the fields that it reads', () => {
  const answer = { status: 'ERROR', reason: 'lost', body: '{"error":"Backend route unavailable"}' } as const;
  expect(sent(answerMessage(task, answer, 100, outcomes)).slice(0, 4)).toEqual([task, 'ERROR', 502, answer.body]);
  expect(sent(answerMessage(task, answer, 10, outcomes)).slice(0, 4)).toEqual([task, 'ERROR', 502, null]);
  expect(sent(revokeMessage(task, lock, endings.DEPLOYMENT_DELETED, outcomes))).toMatchObject([
    task,
    lock,
    { status: 'CANCELLED', httpStatus: 503, text: 'deployment stopped', failureReason: 'deployment_deleted' },
  ]);
  expect(sent(revokeMessage(task, lock, endings.CALLER_LEFT, outcomes))[2]).toMatchObject({
    httpStatus: 499,
    text: 'caller left',
    failureReason: 'request_cancelled',
  });
});

test.each([
  ['COMPLETE', 200],
  ['ERROR', 500],
  ['ERROR', 502],
  ['ERROR', 503],
  ['CANCELLED', 503],
  ['CANCELLED', 499],
  ['CANCELLED', 500],
  ['TIMEOUT', 504],
  ['EXPIRED', 504],
] as const)('an answer of the version before keeps its status and text: %s, %i', (status, httpStatus) => {
  const { finished, body } = readAnswer(sent<AnswerMessage>([task, status, httpStatus, '{"n":1}']), outcomes);
  expect([finished.status, statusOf(finished), body]).toEqual([status, httpStatus, '{"n":1}']);
});

test('a reason of a later version is read from its HTTP status', () => {
  expect(statusOf(readAnswer([task, 'ERROR', 502, null, 'a_later_reason'], outcomes).finished)).toBe(502);
});

test('an order to stop keeps its ending, from this version and from the one before', () => {
  const read = (message: unknown): Ending => readRevoke(sent(message), outcomes)[2];
  const own = read(revokeMessage(task, lock, endings.CALLER_LEFT, outcomes));
  expect(own).toEqual({ ...endings.CALLER_LEFT, detail: 'caller left' });
  const older = { status: 'CANCELLED', httpStatus: 503, text: 'task cancelled', failureReason: 'request_cancelled' };
  expect(read([task, lock, older])).toEqual({
    ...endings.CANCELLED,
    failureReason: 'request_cancelled',
    detail: 'task cancelled',
  });
});
