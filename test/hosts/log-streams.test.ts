// Output of a container on its way to people who watch it: from a real container through the agent to a stream, while
// the scheduler is killed. Events and log lines also go to a collector and a file.
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { readFileSync } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test as plain } from 'vitest';
import { SseClient } from '../helpers/sse.ts';
import { MAIN, Platform } from '../helpers/platform.ts';
import type { Deployment } from '../helpers/platform.ts';
import { startProgram } from '../helpers/programs.ts';
import { docker, waitFor } from '../helpers/services.ts';

const LINES = 300;
const opened: SseClient[] = [];
afterEach(() => {
  for (const client of opened.splice(0)) client.close();
});

interface OtlpRecord {
  readonly body?: { readonly stringValue?: string };
  readonly eventName?: string;
  readonly attributes: readonly { readonly key: string; readonly value: { readonly stringValue?: string } }[];
}

/** A collector of OTLP over HTTP, as JSON. It refuses while it is away. */
class Collector {
  readonly records: OtlpRecord[] = [];
  readonly authorizations = new Set<string | undefined>();
  isAway = false;
  #server: Server | undefined;

  async start(): Promise<string> {
    const server = createServer((request, response) => {
      const parts: Buffer[] = [];
      request.on('data', (part: Buffer) => parts.push(part));
      request.on('end', () => {
        response.statusCode = this.isAway ? 400 : 200;
        response.setHeader('content-type', 'application/json').end('{}');
        if (this.isAway || request.url !== '/v1/logs') return;
        this.authorizations.add(request.headers.authorization);
        const sent = JSON.parse(Buffer.concat(parts).toString()) as {
          readonly resourceLogs: readonly {
            readonly scopeLogs: readonly { readonly logRecords: readonly OtlpRecord[] }[];
          }[];
        };
        for (const { scopeLogs } of sent.resourceLogs)
          for (const { logRecords } of scopeLogs) this.records.push(...logRecords);
      });
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#server = server;
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server?.closeAllConnections();
    this.#server?.close();
  }
}

const collector = new Collector();
let address = '';
beforeAll(async () => {
  address = await collector.start();
});
afterAll(() => collector.stop());

// oxlint-disable-next-line no-empty-pattern
const test = plain.extend('platform', { scope: 'file' }, async ({}, { onCleanup }): Promise<Platform> => {
  const files: { path: string } = { path: '' };
  const platform = new Platform(await docker(), (daemon) =>
    daemon === 'scheduler'
      ? {
          LONGSHORE_EXPORT_OTLP: address,
          LONGSHORE_EXPORT_OTLP_HEADERS: 'authorization=Bearer of-the-collector',
          LONGSHORE_EXPORT_FILE: files.path,
        }
      : {},
  );
  files.path = exportFile(platform);
  onCleanup(() => platform.stop());
  await platform.start();
  return platform;
});
const exportFile = ({ directory }: Platform): string => join(directory, 'export.jsonl');

const deployed = (platform: Platform, name: string): Promise<Deployment> =>
  platform.deploy({
    app: 'printing.py',
    handler: 'count',
    name,
    stubType: 'taskqueue/deployment',
    keepWarmSeconds: 60,
    retries: 0,
  });

async function put(platform: Platform, deployment: Deployment, input: object): Promise<string> {
  const answer = await platform.invoke(deployment, input);
  return String((JSON.parse(answer.text) as { task_id: unknown }).task_id);
}

async function watch(platform: Platform, query: string, lastId?: string): Promise<SseClient> {
  const headers = lastId === undefined ? {} : { 'last-event-id': lastId };
  const url = `${platform.url}/api/v1/logs/${platform.workspaceId}/stream?${query}`;
  const client = await SseClient.open(url, platform.token, headers);
  opened.push(client);
  expect(client.status).toBe(200);
  return client;
}

const messages = (client: SseClient): unknown[] => client.frames.map((_frame, at) => client.json(at)['message']);
const wanted = Array.from({ length: LINES }, (_unused, n) => `line ${n}`);

/**
 * The lines that the installation has. An agent sends a batch again whose acknowledgement a killed scheduler took with
 * it, so lines may be stored twice; none is missing, and first copies are in order.
 */
async function stored(platform: Platform, about: string): Promise<unknown[]> {
  const all = await watch(platform, `${about}&seq_num=1&wait=0`);
  await all.over();
  const lines = messages(all).filter((line) => /^line \d+$/.test(String(line)));
  expect([...new Set(lines)]).toEqual(wanted);
  return lines;
}

describe('a stream of log lines', () => {
  test('has each line once and in order, also when the scheduler dies meanwhile', async ({ platform }) => {
    const deployment = await deployed(platform, 'watched');
    const about = `object_type=deployment&object_id=${deployment.deploymentId}`;
    const first = await watch(platform, about);
    const taskId = await put(platform, deployment, { lines: LINES, pause: 0.02 });
    await first.has(50);
    await platform.scheduler.kill();
    await first.over();
    await platform.startScheduler();
    const second = await watch(platform, about, first.frames.at(-1)?.id);
    await waitFor(() => messages(second).at(-1) === wanted.at(-1), 'the last line has come');
    expect([...messages(first), ...messages(second)]).toEqual(await stored(platform, `task_id=${taskId}`));
    expect(first.json(0)).toMatchObject({
      task_id: taskId,
      stub_id: deployment.stubId,
      stub_type: 'taskqueue/deployment',
      deployment_id: deployment.deploymentId,
      stream: 'stdout',
      machine_id: expect.stringMatching(/^[0-9a-f]{8}$/),
      app_id: expect.any(String),
    });
    // Selectors of the start, and filters.
    const offset = await watch(platform, `task_id=${taskId}&tail_offset=3&wait=0`);
    await offset.over();
    expect(messages(offset)).toEqual(wanted.slice(-3));
    const some = await watch(platform, `task_id=${taskId}&seq_num=1&wait=0&query=${encodeURIComponent('LINE 29')}`);
    await some.over();
    expect(messages(some)).toEqual(wanted.filter((line) => line.startsWith('line 29')));
    const none = await watch(platform, `stub_id=${deployment.stubId}&seq_num=1&wait=0&query=nothing`);
    await none.over();
    expect(none.frames).toEqual([]);
  });

  test('is what `longshore logs --follow` prints, across a restart of the scheduler', async ({ platform }) => {
    const deployment = await deployed(platform, 'followed');
    const env = { ...platform.env(), LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token };
    const child = await startProgram(process.execPath, [MAIN, 'logs', 'followed', '--follow'], { env });
    await put(platform, deployment, { lines: LINES, pause: 0.02 });
    await waitFor(() => child.output().includes('line 40'), 'lines are printed');
    await platform.scheduler.kill();
    await platform.startScheduler();
    await waitFor(() => child.output().includes(`line ${LINES - 1}`), 'the last line is printed');
    await child.end('SIGINT');
    expect(child.output().match(/line \d+$/gm)).toEqual(await stored(platform, `stub_id=${deployment.stubId}`));
  });
});

describe('exports', () => {
  test('a collector and a file have every line and event in order; a collector that was away gets what it missed', async ({
    platform,
  }) => {
    const deployment = await deployed(platform, 'exported');
    collector.isAway = true;
    const taskId = await put(platform, deployment, { lines: 5 });
    const ofTask = ({ attributes }: OtlpRecord): boolean =>
      attributes.some(({ key, value }) => key === 'longshore.task_id' && value.stringValue === taskId);
    interface Exported {
      readonly kind: string;
      readonly task_id?: string;
      readonly message?: string;
      readonly data?: { readonly status?: string };
    }
    const inFile = (): readonly Exported[] =>
      readFileSync(exportFile(platform), 'utf8')
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as Exported)
        .filter((record) => record.task_id === taskId);
    const lines = ['line 0', 'line 1', 'line 2', 'line 3', 'line 4'];
    const statuses = ['PENDING', 'RUNNING', 'COMPLETE'];
    await waitFor(() => inFile().length === 8, 'the file has all of them', 20_000);
    expect(inFile().flatMap(({ message }) => message ?? [])).toEqual(lines);
    expect(inFile().flatMap(({ data }) => data?.status ?? [])).toEqual(statuses);
    expect(collector.records.filter(ofTask)).toEqual([]);
    collector.isAway = false;
    await waitFor(() => collector.records.filter(ofTask).length >= 8, 'the collector has all of them', 40_000);
    const told = collector.records.filter(ofTask);
    expect(told.filter(({ eventName }) => !eventName).map(({ body }) => body?.stringValue)).toEqual(lines);
    expect(told.filter(({ eventName }) => eventName).map(({ eventName }) => eventName)).toEqual([
      'task.created',
      'task.updated',
      'task.updated',
    ]);
    expect([...collector.authorizations]).toEqual(['Bearer of-the-collector']);
  });
});
