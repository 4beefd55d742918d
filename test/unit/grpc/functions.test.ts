// A call of a function that cannot be taken at first: refusals of a moment are waited for, others are told.
import { expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { functionInvoke } from '../../../scheduler/api/grpc/operations/functions.ts';
import type { FunctionParts } from '../../../scheduler/api/grpc/operations/functions.ts';
import type { UnavailableReason } from '../../../scheduler/tasks/admission/calls.ts';
import type { Caller } from '../../../scheduler/workspaces/identity/caller.ts';

const workspaceId = newId<WorkspaceId>();
const stubId = newId<StubId>();
const caller = { workspaceId, type: 'workspace' } as Caller;

/** @param refusals - what each call of `submit` is refused with; afterwards calls are taken */
function aFunction(...refusals: readonly UnavailableReason[]) {
  const asked: string[] = [];
  const parts = {
    targets: { byStub: () => Promise.resolve({ workspaceId, stubId, kind: 'function', active: true }) },
    submissions: {
      submit: (_target: unknown, { input }: { readonly input: string }) => {
        asked.push(input);
        const reason = refusals[asked.length - 1];
        return Promise.resolve(
          reason === undefined ? { kind: 'accepted', taskId: 'task' } : { kind: 'unavailable', reason },
        );
      },
    },
    liveLogs: { hub: { knownTail: () => Promise.resolve(0) } },
    clock: { monotonicMs: () => performance.now() },
    settings: { maxInvokeBodyBytes: 1_000 },
    lostCallers: { came: () => () => undefined, isHere: () => true },
  } as unknown as FunctionParts;
  const request = { stubId, args: Buffer.from('args'), headless: false, taskId: '', logOffset: 0 };
  const invoke = (signal: AbortSignal) => functionInvoke(parts).stream?.(caller, request, signal);
  return { asked, first: async (signal: AbortSignal) => invoke(signal)?.[Symbol.asyncIterator]().next() };
}

test('a refusal that passes is waited for, and the same call is taken afterwards', async () => {
  const { asked, first } = aFunction('commits_failing', 'adds_waiting', 'records_behind');
  expect(await first(new AbortController().signal)).toMatchObject({ value: { taskId: 'task', done: false } });
  expect(asked).toHaveLength(4);
  expect(new Set(asked).size).toBe(1);
});

test('a call that may have been taken is not made again, nor one whose caller has left', async () => {
  const doubtful = aFunction('not_recorded');
  await expect(doubtful.first(new AbortController().signal)).rejects.toThrow('could not be recorded');
  expect(doubtful.asked).toHaveLength(1);
  const left = aFunction('commits_failing');
  await expect(left.first(AbortSignal.abort())).rejects.toThrow('cannot be recorded now');
  expect(left.asked).toHaveLength(1);
});
