// Topics that are followed: what is kept and read of them, and the bounds of a workspace.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { FastifyRequest } from 'fastify';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { SharedTopics } from '#scheduler/api/http/rest/live-shared.ts';
import type { SharedParts, TopicReader } from '#scheduler/api/http/rest/live-shared.ts';
import { readTopics } from '#scheduler/api/http/rest/live-topics.ts';
import type { RestRequest, RestRoute } from '#scheduler/api/http/rest/route.ts';
import type { Caller } from '#scheduler/workspaces/identity/caller.ts';

const WORKSPACE = 'w' as WorkspaceId;
const HTTP = { protocol: 'http', host: 'here' } as FastifyRequest;

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});
const pass = (ms = 0): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

type Answer = (request: RestRequest) => unknown;

/** Topics of tasks that `answer` answers for. */
function topicsOf(answer: Answer, parts: Partial<SharedParts> = {}) {
  const readings: RestRequest[] = [];
  const route = {
    method: 'GET',
    path: '/task/{ws}/{taskId}',
    handle: async (request: RestRequest) => {
      readings.push(request);
      return Promise.resolve(await answer(request));
    },
  } as unknown as RestRoute;
  const topics = new SharedTopics({
    clock: { nowMs: () => Date.now(), monotonicMs: () => Date.now() },
    log: { info: () => undefined } as never,
    ...parts,
  });
  const follow = (id: string, workspaceId = WORKSPACE) => {
    const frames: Buffer[] = [];
    const reader: TopicReader = {
      caller: { type: 'workspace' } as Caller,
      http: HTTP,
      take: (_topic, frame) => void frames.push(frame),
    };
    const [topic] = readTopics([`task:${id}`], [route]).topics;
    return { frames, ...topics.follow(workspaceId, topic!, reader) };
  };
  return { topics, readings, follow };
}

const eventsOf = (frames: readonly Buffer[]): readonly string[] =>
  frames.map((frame) => /^event: (\w+)/.exec(frame.toString())?.[1] ?? '');

test('a task that ended is read again once a minute at most, whatever happens', async () => {
  const { topics, readings, follow } = topicsOf(() => ({ id: 'a', ended_at: '2026-01-01T00:00:00Z' }));
  follow('a');
  await pass();
  for (let seconds = 0; seconds < 59; seconds += 1) {
    topics.wake(WORKSPACE);
    await pass(1_000);
  }
  expect(readings).toHaveLength(1);
  await pass(2_000);
  expect(readings).toHaveLength(2);
});

test('a task that goes on is read again when something happens', async () => {
  const { topics, readings, follow } = topicsOf(() => ({ id: 'a', ended_at: null }));
  follow('a');
  await pass();
  topics.wake(WORKSPACE);
  await pass(1_000);
  expect(readings).toHaveLength(2);
});

test('all who join get the same bytes of the whole answer', async () => {
  const { follow } = topicsOf(() => ({ id: 'a', ended_at: null, name: 'x' }));
  follow('a');
  await pass();
  const [second, third] = [follow('a'), follow('a')];
  expect(second.frames[0]).toBe(third.frames[0]);
  expect(JSON.parse(/data: (.*)/.exec(String(second.frames[0]))?.[1] ?? '')).toMatchObject({
    value: { id: 'a', ended_at: null, name: 'x' },
  });
});

test('answers that are too large together fail, and the others stay', async () => {
  const answer: Answer = ({ params }) => ({ id: params['taskId'], ended_at: null, text: 'x'.repeat(400) });
  const { follow } = topicsOf(answer, { mostKept: { ofWorkspace: 1_000, ofReplica: 1_500 } });
  const [first, second] = [follow('a'), follow('b')];
  await pass();
  const third = follow('c');
  await pass();
  expect([first, second, third].map(({ frames }) => eventsOf(frames))).toEqual([['whole'], ['whole'], ['failed']]);
  expect(String(third.frames[0])).toContain('"status":429,"code":"too_many_streams"');
  const elsewhere = [follow('d', 'v' as WorkspaceId), follow('e', 'v' as WorkspaceId)];
  await pass();
  expect(elsewhere.map(({ frames }) => eventsOf(frames))).toEqual([['whole'], ['failed']]);
  expect(String(elsewhere[1]?.frames[0])).toContain('"status":503,"code":"streams_full"');
  // Room that a topic leaves is used.
  first.end();
  await pass(60_000);
  expect(eventsOf(third.frames)).toEqual(['failed', 'whole']);
});

test('a topic that is read again and again takes its room once', async () => {
  let turn = 0;
  const answer: Answer = () => ({ id: 'a', ended_at: null, text: 'x'.repeat(400), turn: (turn += 1) });
  const { topics, follow } = topicsOf(answer, { mostKept: { ofWorkspace: 1_000, ofReplica: 1_000 } });
  const { frames } = follow('a');
  for (let round = 0; round < 20; round += 1) {
    topics.wake(WORKSPACE);
    await pass(1_000);
  }
  expect(new Set(eventsOf(frames))).toEqual(new Set(['whole', 'changed']));
});

test('all topics of a workspace share its time, and another workspace has its own', async () => {
  const { topics, readings, follow } = topicsOf(({ params }) => ({ id: params['taskId'], ended_at: null }));
  for (let at = 0; at < 200; at += 1) follow(String(at));
  const other = follow('other', 'v' as WorkspaceId);
  for (let round = 0; round < 600; round += 1) {
    topics.wake(undefined);
    await pass(100);
  }
  const own = readings.filter(({ workspaceId }) => workspaceId === WORKSPACE);
  // Each by itself would be read twice a second: 24,000 times.
  expect(own.length).toBeLessThan(60 * 25 + 204);
  expect(new Set(own.map(({ params }) => params['taskId'])).size).toBe(200);
  expect(readings.length - own.length).toBeGreaterThan(100);
  expect(eventsOf(other.frames)).toEqual(['whole']);
});

test('who ends all topics and follows them anew has no more readings', async () => {
  const { readings, follow } = topicsOf(({ params }) => ({ id: params['taskId'], ended_at: null }));
  for (let round = 0; round < 60; round += 1) {
    const followed = Array.from({ length: 60 }, (_, at) => follow(String(at)));
    await pass(1_000);
    for (const { end } of followed) end();
  }
  expect(readings.length).toBeLessThan(60 * 25 + 204);
});

test('a look at the same waiting containers tells nothing, and a change tells the rows that are other', async () => {
  let containers = 2;
  const route = {
    method: 'GET',
    path: '/waiting',
    handle: () =>
      Promise.resolve({
        data: [
          { oldest_id: 'a', containers },
          { oldest_id: 'b', containers: 1 },
        ],
        looked_at: new Date().toISOString(),
      }),
  } as unknown as RestRoute;
  const topics = new SharedTopics({
    clock: { nowMs: () => Date.now(), monotonicMs: () => Date.now() },
    log: { info: () => undefined } as never,
  });
  const frames: Buffer[] = [];
  const reader: TopicReader = {
    caller: { type: 'workspace' } as Caller,
    http: HTTP,
    take: (_topic, frame) => void frames.push(frame),
  };
  const [topic] = readTopics(['waiting'], [route]).topics;
  topics.follow(WORKSPACE, topic!, reader);
  await pass(30_000);
  expect(eventsOf(frames)).toEqual(['whole']);
  containers = 3;
  await pass(10_000);
  expect(eventsOf(frames)).toEqual(['whole', 'changed']);
  expect(frames[1]?.toString()).toContain('"rows":[{"oldest_id":"a","containers":3}]');
});
