import { fastify } from 'fastify';
import { describe, expect, test } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { Registry } from '#shared/metrics.ts';
import type { TokenScope } from '#shared/domain/token-scopes.ts';
import type { Caller } from '#scheduler/workspaces/identity/caller.ts';
import { SseMetrics, SseStreams, sseFrame } from '#scheduler/api/http/sse.ts';

const [OWN, OTHER, THIRD] = [newId<WorkspaceId>(), newId<WorkspaceId>(), newId<WorkspaceId>()];

test('streams of a workspace, and of all, are bounded; a place that is left is free, once', async () => {
  const registry = new Registry();
  const streams = new SseStreams({
    clock: systemClock,
    metrics: new SseMetrics(registry),
    most: { ofWorkspace: 2, ofReplica: 3 },
  });
  const refusal = (workspaceId: WorkspaceId): unknown => {
    try {
      streams.leave(streams.take('events', workspaceId));
      return undefined;
    } catch (error) {
      return error instanceof AppError ? [error.code, error.details['retryAfterSeconds']] : error;
    }
  };
  const [first] = [streams.take('events', OWN), streams.take('task', OWN)];
  expect(refusal(OWN)).toEqual(['too_many_streams', 10]);
  expect(refusal(OTHER)).toBeUndefined();
  streams.take('logs', OTHER);
  expect([refusal(THIRD), refusal(OTHER)]).toEqual([
    ['streams_full', 10],
    ['streams_full', 10],
  ]);
  streams.leave(first);
  streams.leave(first);
  expect([refusal(OWN), refusal(THIRD)]).toEqual([['too_many_streams', 10], undefined]);
  streams.take('events', THIRD);
  expect(refusal(OWN)).toEqual(['streams_full', 10]);
  const page = await registry.metrics();
  expect(page).toContain('longshore_scheduler_event_streams{kind="events"} 1');
  expect(page).toContain('longshore_scheduler_event_streams{kind="task"} 1');
  expect(page).toContain('longshore_scheduler_event_streams_refused_total{bound="workspace"} 2');
  expect(page).toContain('longshore_scheduler_event_streams_refused_total{bound="replica"} 3');
});

test('two workspaces never fill the streams of all: each has at most what is left', () => {
  const streams = new SseStreams({
    clock: systemClock,
    metrics: new SseMetrics(new Registry()),
    most: { ofWorkspace: 4, ofReplica: 8 },
  });
  const fill = (workspaceId: WorkspaceId): readonly unknown[] => {
    for (let count = 0; ; count += 1)
      try {
        streams.take('events', workspaceId);
      } catch (error) {
        return [count, error instanceof AppError ? error.code : error];
      }
  };
  expect([fill(OWN), fill(OTHER), fill(THIRD)]).toEqual([
    [4, 'too_many_streams'],
    [2, 'too_many_streams'],
    [1, 'too_many_streams'],
  ]);
});

test('a frame has an id, a name, and a line of data for each of its lines', () => {
  expect(String(sseFrame({ id: 7, event: 'log', data: 'a\nb' }))).toBe('id: 7\nevent: log\ndata: a\ndata: b\n\n');
  expect(String(sseFrame({ data: '{}' }))).toBe('data: {}\n\n');
});

describe('a token that changes while its stream opens', () => {
  const aCaller = (said: Partial<Caller> = {}): Caller =>
    ({ workspaceId: OWN, type: 'workspace', isAdmin: false, ...said }) as Caller;
  const limitedTo = (...scopes: readonly TokenScope[]): Partial<Caller> => ({ confined: { scopes } });
  const FIRST = { caller: aCaller() };

  /** Answer to a caller whose token is then as `look` says. */
  async function opened(look: () => Caller | null | Promise<Caller | null>, { caller } = FIRST) {
    const told: string[] = [];
    const streams = new SseStreams({
      clock: systemClock,
      metrics: new SseMetrics(new Registry()),
      most: { ofWorkspace: 1, ofReplica: 1 },
    });
    const app = fastify();
    app.setErrorHandler((error, _request, reply) => reply.code(401).send(error instanceof AppError ? error.code : ''));
    app.get('/', async (_request, reply) => {
      await streams.begin(
        reply,
        streams.take('events', OWN),
        { look, caller },
        {
          begin: (stream) => {
            told.push('begun');
            stream.end();
          },
          drained: () => undefined,
          tick: () => undefined,
          closed: () => told.push('closed'),
        },
      );
      return reply;
    });
    const { statusCode, body } = await app.inject('/');
    await expect.poll(() => told.at(-1)).toBe('closed');
    // The place is free again, whatever became of the stream.
    streams.take('events', OWN);
    await app.close();
    return { statusCode, body, told };
  }
  const REFUSED = { statusCode: 401, body: 'unauthorized', told: ['closed'] };

  test('is refused when it was switched off, or limited in another way', async () => {
    expect(await opened(() => null)).toEqual(REFUSED);
    expect(await opened(() => Promise.resolve(aCaller(limitedTo('invoke'))))).toEqual(REFUSED);
    const limited = { caller: aCaller(limitedTo('read')) };
    expect(await opened(() => aCaller(limitedTo('read', 'invoke')), limited)).toEqual(REFUSED);
  });

  test('is served when it counts as before, when nobody can tell, and when it was good for one call', async () => {
    const served = { statusCode: 200, told: ['begun', 'closed'] };
    const limited = { caller: aCaller(limitedTo('read')) };
    expect(await opened(() => aCaller())).toMatchObject(served);
    expect(await opened(() => aCaller(limitedTo('read')), limited)).toMatchObject(served);
    expect(await opened(() => Promise.reject(new Error('the database is away')))).toMatchObject(served);
    expect(await opened(() => null, { caller: aCaller({ isLast: true }) })).toMatchObject(served);
  });
});
