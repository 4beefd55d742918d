import { expect, test } from 'vitest';
import { systemClock } from '#shared/clock.ts';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { Registry } from '#shared/metrics.ts';
import { SseMetrics, SseStreams, sseFrame } from '#scheduler/api/http/sse.ts';

const [OWN, OTHER, THIRD] = [newId<WorkspaceId>(), newId<WorkspaceId>(), newId<WorkspaceId>()];

test('streams of a workspace, and of all, are bounded; a place that is left is free, once', async () => {
  const registry = new Registry();
  const streams = new SseStreams({
    authenticator: { authenticate: () => null },
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
  expect(refusal(OWN)).toBeUndefined();
  streams.take('events', THIRD);
  expect(refusal(OWN)).toEqual(['streams_full', 10]);
  const page = await registry.metrics();
  expect(page).toContain('longshore_scheduler_event_streams{kind="events"} 1');
  expect(page).toContain('longshore_scheduler_event_streams{kind="task"} 1');
  expect(page).toContain('longshore_scheduler_event_streams_refused_total{bound="workspace"} 1');
  expect(page).toContain('longshore_scheduler_event_streams_refused_total{bound="replica"} 3');
});

test('a frame has an id, a name, and a line of data for each of its lines', () => {
  expect(String(sseFrame({ id: 7, event: 'log', data: 'a\nb' }))).toBe('id: 7\nevent: log\ndata: a\ndata: b\n\n');
  expect(String(sseFrame({ data: '{}' }))).toBe('data: {}\n\n');
});
