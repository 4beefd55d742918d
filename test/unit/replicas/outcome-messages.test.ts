import { expect, test } from 'vitest';
import type { InstanceId, LockToken, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import * as endings from '#scheduler/domain/endings.ts';
import { answerMessage, readAnswer, readRevoke } from '#scheduler/replicas/outcome-messages.ts';

const task = 't' as TaskId;
const workspaceId = 'w' as WorkspaceId;
const callers = { taskId: task, replica: 'r' as InstanceId, workspaceId };
const lock = 'l' as LockToken;
const sent = <T>(message: T): T => JSON.parse(JSON.stringify(message)) as T;

test('an answer keeps its status and reason, and its body where a message has room for it', () => {
  const answer = { status: 'ERROR', reason: 'lost', body: '{"error":"Backend route unavailable"}' } as const;
  const finished = { status: 'ERROR', reason: 'lost' };
  expect(readAnswer(sent(answerMessage(callers, answer, 2, 100)))).toEqual({
    taskId: task,
    finished,
    body: answer.body,
    attempt: 2,
    workspaceId,
  });
  expect(readAnswer(sent(answerMessage(callers, answer, 2, 10)))).toMatchObject({ body: null, attempt: 2 });
});

test('an order to stop keeps its ending', () => {
  expect(readRevoke(sent([task, lock, endings.CALLER_LEFT]))).toEqual([task, lock, endings.CALLER_LEFT]);
});

test('where a later version sends a reason of its own, the status decides', () => {
  expect(readAnswer([task, 'ERROR', 'a_later_reason', null, 1, workspaceId]).finished).toEqual({
    status: 'ERROR',
    reason: undefined,
  });
  const [, , ending] = readRevoke([task, lock, { status: 'CANCELLED', reason: 'a_later_reason', detail: 'so' }]);
  expect(ending).toEqual({ ...endings.CANCELLED, detail: 'so' });
});
