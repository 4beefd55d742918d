import { expect, test } from 'vitest';
import { MEMORY_RULES, RememberedAnswers } from '../../../scheduler/api/grpc/requests.ts';
import type { Remembered, RequestKey } from '../../../scheduler/api/grpc/requests.ts';

const key = (id: string, said: Partial<RequestKey> = {}): RequestKey =>
  ({ workspaceId: 'ws', tokenId: 'token', path: '/a/B', id, ...said }) as RequestKey;

/** Answers, and how often each id was asked of the handler. */
function aMemory(nowMs: { at: number } = { at: 0 }) {
  const memory = new RememberedAnswers({ monotonicMs: () => nowMs.at });
  const made: string[] = [];
  const ask = (of: RequestKey, answer: Partial<Remembered> = {}): Promise<Remembered> =>
    memory.answer(of, () => {
      made.push(of.id);
      return Promise.resolve({ bytes: Buffer.from(of.id), isKept: true, ...answer });
    });
  return { memory, made, ask };
}

test('an answer is kept for its token and call, for ten minutes', async () => {
  const nowMs = { at: 0 };
  const { made, ask } = aMemory(nowMs);
  await Promise.all([ask(key('a')), ask(key('a'))]);
  await ask(key('a'));
  expect(made).toEqual(['a']);
  await ask(key('a', { tokenId: 'other' as never }));
  await ask(key('a', { path: '/a/C' }));
  expect(made).toHaveLength(3);
  nowMs.at = MEMORY_RULES.keptMs + 1;
  await ask(key('a'));
  expect(made).toHaveLength(4);
});

test('a refusal and a failure are asked anew', async () => {
  const { memory, made, ask } = aMemory();
  await ask(key('a'), { isKept: false });
  await ask(key('a'));
  expect(made).toEqual(['a', 'a']);
  await expect(memory.answer(key('b'), () => Promise.reject(new Error('away')))).rejects.toThrow('away');
  await ask(key('b'));
  expect(made).toEqual(['a', 'a', 'b']);
});

test('an acknowledged answer is dropped, for its token alone', async () => {
  const { memory, made, ask } = aMemory();
  await ask(key('a'));
  memory.acknowledged('ws' as never, 'other' as never, ['a']);
  await ask(key('a'));
  expect(made).toEqual(['a']);
  memory.acknowledged('ws' as never, 'token' as never, ['x', 'a']);
  await ask(key('a'));
  expect(made).toEqual(['a', 'a']);
});

test('a workspace keeps a bounded number and size of answers, the newest', async () => {
  const { memory, made, ask } = aMemory();
  for (let n = 0; n <= MEMORY_RULES.ofWorkspace; n += 1) await ask(key(`n${n}`));
  expect(memory.size('ws' as never)).toBe(MEMORY_RULES.ofWorkspace);
  await ask(key(`n${MEMORY_RULES.ofWorkspace}`));
  expect(made).toHaveLength(MEMORY_RULES.ofWorkspace + 1);
  const large = { bytes: Buffer.alloc(MEMORY_RULES.workspaceBytes / 2) };
  for (const id of ['x', 'y', 'z']) await ask(key(id, { workspaceId: 'large' as never }), large);
  expect(memory.size('large' as never)).toBe(2);
});

test('workspaces are bounded, and the one that was used longest ago goes', async () => {
  const { memory, ask } = aMemory();
  for (let n = 0; n <= MEMORY_RULES.workspaces; n += 1) await ask(key('a', { workspaceId: `ws-${n}` as never }));
  expect(memory.size('ws-0' as never)).toBe(0);
  expect(memory.size('ws-1' as never)).toBe(1);
});

test('a call that is under way is not forgotten, however many others are answered', async () => {
  const nowMs = { at: 0 };
  const { memory, made, ask } = aMemory(nowMs);
  const first = Promise.withResolvers<Remembered>();
  const slow = memory.answer(key('slow'), () => first.promise);
  for (let n = 0; n <= MEMORY_RULES.ofWorkspace; n += 1) await ask(key(`n${n}`));
  memory.acknowledged('ws' as never, 'token' as never, ['slow']);
  nowMs.at = MEMORY_RULES.keptMs + 1;
  const again = ask(key('slow'));
  first.resolve({ bytes: Buffer.from('once'), isKept: true });
  expect([(await slow).bytes, (await again).bytes].map(String)).toEqual(['once', 'once']);
  expect(made).not.toContain('slow');
});

test('all workspaces together keep a bounded number of bytes, and none for longer than ten minutes', async () => {
  const nowMs = { at: 0 };
  const { memory, ask } = aMemory(nowMs);
  const large = { bytes: Buffer.alloc(MEMORY_RULES.workspaceBytes) };
  const most = MEMORY_RULES.allBytes / MEMORY_RULES.workspaceBytes;
  for (let n = 0; n <= most; n += 1) await ask(key('a', { workspaceId: `ws-${n}` as never }), large);
  expect([memory.bytes, memory.size('ws-0' as never)]).toEqual([MEMORY_RULES.allBytes, 0]);
  nowMs.at = MEMORY_RULES.keptMs + 1;
  await ask(key('a', { workspaceId: 'later' as never }));
  expect(memory.bytes).toBe(1);
});
