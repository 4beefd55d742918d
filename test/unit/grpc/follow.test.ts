// A task as its caller follows it, with a log and events that the test plays.
import { expect, test } from 'vitest';
import type { TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import { follow } from '../../../scheduler/api/grpc/operations/follow.ts';
import type { Followed, FollowParts } from '../../../scheduler/api/grpc/operations/follow.ts';

const workspaceId = 'ws' as WorkspaceId;
const taskId = 'task' as TaskId;

interface Player {
  take(row: unknown): string;
}

/** A task, its log and its events. */
function aTask() {
  const readers: { log?: Player; events?: Player } = {};
  const state = { status: 'RUNNING', resumed: 0, ended: 0, fromSeq: 0 };
  const subscribe =
    (kind: 'events' | 'log') =>
    (_workspaceId: string, _filter: unknown, fromSeq: number | undefined, reader: Player) => {
      readers[kind] = reader;
      if (kind === 'log') state.fromSeq = fromSeq ?? -1;
      const end = () => void (state.ended += 1);
      return Promise.resolve({ start: () => undefined, resume: () => void (state.resumed += 1), end });
    };
  const parts = {
    tasks: { read: () => Promise.resolve({ taskId, status: state.status }) },
    events: { hub: { subscribe: subscribe('events'), knownTail: () => Promise.resolve(0) } },
    liveLogs: { hub: { subscribe: subscribe('log'), knownTail: () => Promise.resolve(0) } },
    clock: { monotonicMs: () => performance.now() },
    log: { info: () => undefined },
  } as unknown as FollowParts;
  return {
    state,
    parts,
    print: (line: string) => readers.log?.take({ line }),
    changed: () => readers.events?.take({}),
  };
}

const of = (skipBytes = 0) => ({ workspaceId, taskId, fromSeq: 7, skipBytes });
const never = new AbortController().signal;

/** All that is told up to the end. */
async function told(source: AsyncIterable<Followed>, begun: () => void): Promise<{ text: string; end: unknown }> {
  let text = '';
  let end: unknown;
  let hasBegun = false;
  const begin = setInterval(() => {
    if (!hasBegun) begun();
    hasBegun = true;
  }, 1);
  for await (const said of source) {
    if (said.kind === 'output') text += said.text;
    else end = said.record;
  }
  clearInterval(begin);
  return { text, end };
}

test('lines come with their ends, also those behind the end of the task', async () => {
  const { parts, print, changed, state } = aTask();
  const { text, end } = await told(follow(parts, of(), never), () => {
    print('one');
    print('');
    state.status = 'COMPLETE';
    changed();
    setTimeout(() => print('ä late'), 50);
  });
  expect(text).toBe('one\n\nä late\n');
  expect(end).toMatchObject({ status: 'COMPLETE' });
  expect(state).toMatchObject({ ended: 2, fromSeq: 7 });
});

test.each([0, 4, 5, 6, 9, 12, 100])('a caller who has %i bytes gets those behind them', async (bytes) => {
  const all = Buffer.from('one\nä\nthree\n');
  const { parts, print, changed, state } = aTask();
  const { text } = await told(follow(parts, of(bytes), never), () => {
    for (const line of ['one', 'ä', 'three']) print(line);
    state.status = 'ERROR';
    changed();
  });
  expect(text).toBe(all.subarray(bytes).toString());
});

test('the log waits for a caller who takes nothing', async () => {
  const { parts, print, state } = aTask();
  const following = follow(parts, of(), never);
  const first = following.next();
  while (print('x') === undefined) await new Promise(setImmediate);
  await first;
  let taken = print('x'.repeat(200_000));
  expect(taken).toBe('more');
  taken = print('x'.repeat(200_000));
  expect(taken).toBe('full');
  expect(state.resumed).toBe(0);
  await following.next();
  expect(state.resumed).toBe(1);
  await following.return(undefined);
  expect(state.ended).toBe(2);
});

test('a caller who left is told nothing more', async () => {
  const { parts, state } = aTask();
  const left = new AbortController();
  const next = follow(parts, of(), left.signal).next();
  setTimeout(() => left.abort(), 10);
  expect(await next).toEqual({ done: true, value: undefined });
  expect(state.ended).toBe(2);
});
