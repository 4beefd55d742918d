// The streams of a browser: one for each workspace, patched answers, and what followers hear when it breaks.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { LiveStreams, patched } from '../../../console/live/streams.ts';
import type { Told } from '../../../console/live/streams.ts';

interface Dialled {
  readonly topics: readonly string[];
  readonly signal: AbortSignal;
  readonly say: (event: string, data: unknown) => void;
  readonly end: () => void;
}

function aBrowser() {
  const dialled: Dialled[] = [];
  const refusals: Error[] = [];
  const streams = new LiveStreams(async (path, signal) => {
    const refusal = refusals.shift();
    if (refusal !== undefined) throw refusal;
    let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
    const body = new ReadableStream<Uint8Array>({ start: (given) => void (controller = given) });
    const text = new TextEncoder();
    signal.addEventListener('abort', () => controller?.error(new Error('aborted')));
    dialled.push({
      topics: new URLSearchParams(path.split('?')[1]).get('topics')?.split(',') ?? [],
      signal,
      say: (event, data) => controller?.enqueue(text.encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`)),
      end: () => controller?.close(),
    });
    return Promise.resolve(new Response(body));
  });
  const follow = (topic: string, fromSeq?: number) => {
    const told: Told[] = [];
    const end = streams.follow({ workspaceId: 'w', topic, fromSeq }, (one) => told.push(one));
    return { told, end };
  };
  return { streams, dialled, refusals, follow };
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});
const pass = (ms = 50): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

test('screens that follow at once need one dial, and the last one who leaves ends it', async () => {
  const { dialled, follow } = aBrowser();
  const [first, second, third] = [follow('overview'), follow('overview'), follow('task:1')];
  await pass();
  expect(dialled.map(({ topics }) => topics)).toEqual([['overview', 'task:1']]);
  dialled[0]?.say('whole', { topic: 'overview', at: '2026-01-01T00:00:00Z', value: { total: 1 } });
  await pass();
  expect([first.told, second.told, third.told]).toEqual([
    [{ kind: 'value', value: { total: 1 }, atMs: Date.parse('2026-01-01T00:00:00Z') }],
    [{ kind: 'value', value: { total: 1 }, atMs: Date.parse('2026-01-01T00:00:00Z') }],
    [],
  ]);
  // Who comes later has the value at once, without another dial.
  expect(follow('overview').told).toHaveLength(1);
  third.end();
  await pass();
  expect([dialled.length, dialled[0]?.signal.aborted, dialled[1]?.topics]).toEqual([2, true, ['overview']]);
});

test('nobody follows: no stream, and no timer', async () => {
  const { dialled, follow } = aBrowser();
  const { end } = follow('overview');
  await pass();
  end();
  await pass();
  expect([dialled[0]?.signal.aborted, vi.getTimerCount()]).toEqual([true, 0]);
});

test('changes make the new answer of the old one', () => {
  const value = {
    data: [
      { id: 'a', n: 1 },
      { id: 'b', n: 2 },
    ],
    next: '',
    total: 2,
  };
  const changed = patched(value, { order: ['c', 'b'], rows: [{ id: 'c', n: 3 }], fields: { total: 5 } });
  expect(changed).toEqual({
    data: [
      { id: 'c', n: 3 },
      { id: 'b', n: 2 },
    ],
    next: '',
    total: 5,
  });
  expect(patched(value, { rows: [{ id: 'b', n: 9 }] })).toMatchObject({ data: [{ n: 1 }, { n: 9 }], total: 2 });
});

test('a stream that breaks is told, and dialled again, lines from the last one on', async () => {
  const { dialled, refusals, follow } = aBrowser();
  const { told } = follow('logs:query=x', 5);
  await pass();
  expect(dialled[0]?.topics).toEqual(['logs:query=x&seq_num=5']);
  dialled[0]?.say('lines', { topic: 'logs:query=x&seq_num=5', lines: [{ seq_num: 8 }] });
  await pass();
  refusals.push(new Error('refused'));
  dialled[0]?.end();
  await pass(5_000);
  expect(told.map(({ kind }) => kind)).toEqual(['lines', 'failed', 'failed', 'lines']);
  expect(told[1]).toMatchObject({ isLost: true, problem: { status: 0 } });
  expect(dialled[1]?.topics).toEqual(['logs:query=x&seq_num=9']);
});

test('a session that is over is not dialled again', async () => {
  const { dialled, refusals, follow } = aBrowser();
  refusals.push(Object.assign(new Error('Unauthorized'), { status: 401, code: 'unauthorized' }));
  const { told } = follow('overview');
  await pass(60_000);
  expect([dialled.length, told.length, vi.getTimerCount()]).toEqual([0, 1, 0]);
});

test('a stream that is silent for too long is dialled again', async () => {
  const { dialled, follow } = aBrowser();
  follow('overview');
  await pass();
  await pass(50_000);
  expect(dialled.length).toBe(2);
});

test('topics and workspaces of one browser are bounded', async () => {
  const { streams, dialled, follow } = aBrowser();
  const followed = Array.from({ length: 51 }, (_, at) => follow(`task:${at}`));
  expect(followed.at(-1)?.told).toMatchObject([{ kind: 'failed', problem: { code: 'too_many_topics' } }]);
  const logs = aBrowser();
  const many = Array.from({ length: 17 }, () => logs.follow('logs:'));
  expect(many.at(-1)?.told).toHaveLength(1);
  const refused: Told[] = [];
  for (const workspaceId of ['x', 'y', 'z'])
    streams.follow({ workspaceId, topic: 'overview' }, (told) => refused.push(told));
  expect(refused).toMatchObject([{ problem: { code: 'too_many_topics' } }]);
  await pass();
  expect(dialled[0]?.topics).toHaveLength(50);
});

test('a topic that is too long fails alone, and is not sent', async () => {
  const { dialled, follow } = aBrowser();
  const [long, other] = [follow(`logs:query=${'x'.repeat(500)}`), follow('overview')];
  await pass();
  expect(dialled.map(({ topics }) => topics)).toEqual([['overview']]);
  expect(long.told).toMatchObject([{ kind: 'failed', problem: { code: 'topic_too_long' }, isLost: false }]);
  expect(other.told).toEqual([]);
});

test('topics that would make the address too long fail, and the others stay', async () => {
  const { dialled, follow } = aBrowser();
  // Each character of them takes nine in the address.
  const followed = Array.from({ length: 12 }, (_, at) => follow(`tasks:reason=${'\u20ac'.repeat(200)}${at}`));
  await pass();
  expect(dialled.map(({ topics }) => topics.length)).toEqual([6]);
  expect(followed.map(({ told }) => told.length)).toEqual([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
});
