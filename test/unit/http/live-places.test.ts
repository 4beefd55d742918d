// Topics of log lines take places among the streams of their workspace.
import { expect, test } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { SseMetrics, SseStreams } from '#scheduler/api/http/sse.ts';
import { liveRoute } from '#scheduler/api/http/rest/live.ts';
import type { LiveParts } from '#scheduler/api/http/rest/live.ts';
import type { RestRequest, RestRoute } from '#scheduler/api/http/rest/route.ts';
import { streamRoute } from '#scheduler/api/http/rest/route.ts';

const clock = { nowMs: () => 0, monotonicMs: () => 0 };
const ignore = (): void => undefined;

test('each topic of lines takes a place; one without a place fails alone, and all are given back', async () => {
  const most = { ofWorkspace: 5, ofReplica: 100 };
  const streams = new SseStreams({ clock, metrics: new SseMetrics(new Registry()), most });
  const workspaceId = 'w' as WorkspaceId;
  const free = (): number => {
    const places = [];
    try {
      for (;;) places.push(streams.take('events', workspaceId));
    } catch {
      for (const place of places) streams.leave(place);
    }
    return places.length;
  };
  const logs: RestRoute = streamRoute({
    http: 'GET /logs/{ws}/stream',
    summary: 'Log lines',
    kind: 'logs',
    frames: { description: '', data: {} },
    open: () => Promise.resolve({ begin: ignore, drained: ignore, tick: ignore, closed: ignore }),
  });
  const parts = { clock, streams, events: { hub: { onWoken: ignore } } } as unknown as LiveParts;
  const follow = (topics: readonly string[]) =>
    liveRoute(parts, () => [logs]).stream!.open({
      caller: { type: 'workspace' },
      workspaceId,
      query: { topics },
    } as unknown as RestRequest);
  const [first, second] = [await follow(['logs:a=1', 'logs:a=2', 'logs:a=3']), await follow(['logs:a=1'])];
  expect(free()).toBe(1);
  const third = await follow(['logs:a=1', 'logs:a=2']);
  const frames: string[] = [];
  const write = (frame: Buffer): boolean => frames.push(frame.toString()) > 0;
  third.begin({ isOpen: true, write, end: ignore, finish: ignore, fail: ignore });
  expect(frames.map((frame) => /^event: (\w+)\ndata: \{"topic":"([^"]+)"/.exec(frame)?.slice(1))).toEqual([
    ['failed', 'logs:a=2'],
    ['lines', 'logs:a=1'],
  ]);
  expect(frames[0]).toContain('too_many_streams');
  for (const source of [first, second, third]) source.closed();
  expect(free()).toBe(5);
});
