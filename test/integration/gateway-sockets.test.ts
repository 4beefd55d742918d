// The sockets that containers call the platform through, with a real link behind them and no container in front: what passes, how much, and what is said when nothing can.
import { mkdtempSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import { GatewaySockets } from '#agent/gateway/sockets.ts';
import { AgentMetrics } from '#agent/telemetry/metrics.ts';
import { bearer, openChannel } from '#agent/upstream/channel.ts';
import type { AgentLinkClient } from '#shared/protocol/generated/messages.ts';
import { FakeScheduler, until } from '../helpers/fake-scheduler.ts';

interface Said {
  readonly status: number;
  readonly body: string;
}

let scheduler: FakeScheduler;
let client: AgentLinkClient | undefined;
let sockets: GatewaySockets;
let directory: string;
let violations: string[];
const metrics = new AgentMetrics();

const pathOf = (containerId: string): string => join(directory, containerId, 'gateway.sock');

/** @param hangUp - called with what cuts the request off */
function ask(containerId: string, line: string, body = '', hangUp?: (cut: () => void) => void): Promise<Said> {
  const [method = 'GET', path = '/'] = line.split(' ');
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath: pathOf(containerId), method, path, agent: false }, (answer) => {
      const parts: Buffer[] = [];
      answer.on('data', (part: Buffer) => parts.push(part));
      answer.on('error', reject);
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, body: Buffer.concat(parts).toString() }));
    });
    asked.on('error', reject);
    asked.end(body);
    hangUp?.(() => asked.destroy());
  });
}

const counted = async (result: string): Promise<number> =>
  (await metrics.gatewayCalls.get()).values.find(({ labels }) => labels['result'] === result)?.value ?? 0;

beforeEach(async () => {
  scheduler = new FakeScheduler();
  await scheduler.start();
  client = openChannel(scheduler.address, scheduler.caPem);
  directory = mkdtempSync(join(tmpdir(), 'lsg-'));
  metrics.gatewayCalls.reset();
  violations = [];
  sockets = new GatewaySockets({
    open: (deadlineMs) => client?.callGateway(bearer('x'), { deadline: Date.now() + deadlineMs }),
    metrics,
    log: createLog({ name: 'agent', level: 'silent' }),
    onViolation: (containerId, rule) => violations.push(`${containerId} ${rule}`),
    stalledMs: 300,
  });
  for (const containerId of ['a', 'b']) await sockets.add({ containerId, epoch: 3 }, pathOf(containerId));
});
afterEach(() => {
  sockets.close();
  client?.close();
  scheduler.down();
  rmSync(directory, { recursive: true, force: true });
});

const PUT = 'POST /taskqueue/q';

test('a call is made in the name of the container whose socket it came by', async () => {
  expect(await ask('a', PUT, '{"n":1}')).toEqual({ status: 200, body: '{"n":1}' });
  expect(await ask('b', PUT, '{"n":2}')).toEqual({ status: 200, body: '{"n":2}' });
  expect(scheduler.calls.map(({ head }) => [head.containerId, head.epoch])).toEqual([
    ['a', 3],
    ['b', 3],
  ]);
  expect(await counted('answered')).toBe(2);
});

test.each([
  'POST /api/v1/gateway/tokens',
  'GET /api/v1/gateway/tokens',
  'POST /api/v1/gateway/stubs/deploy',
  'DELETE /taskqueue/q',
  'POST /taskqueue/q/warmup',
  'GET /metrics',
  'GET /api/v1/secret/w',
  'GET /v1/models',
  'POST /api/v1/gateway/objects/../tokens',
])('what is not on the list never leaves the machine: %s', async (line) => {
  const { status, body } = await ask('a', line);
  expect([status, JSON.parse(body)]).toEqual([
    403,
    expect.objectContaining({ ok: false, errMsg: 'Unauthorized Access', code: 'not_allowed' }),
  ]);
  expect(scheduler.calls).toEqual([]);
  expect(await counted('refused')).toBe(1);
});

test('nobody there is said at once, and that nothing was sent', async () => {
  client?.close();
  client = undefined;
  const { status, body } = await ask('a', PUT, '{}');
  expect([status, JSON.parse(body)]).toEqual([503, expect.objectContaining({ code: 'scheduler_away' })]);
  expect(await counted('away')).toBe(1);
});

test('a scheduler that goes away with a call leaves nobody waiting, and promises nothing', async () => {
  scheduler.answerCall = () => undefined;
  const asking = ask('a', PUT, '{}');
  await until('the call to arrive', () => scheduler.calls.length === 1);
  scheduler.down();
  const { status, body } = await asking;
  expect([status, JSON.parse(body)]).toEqual([502, expect.objectContaining({ code: 'call_lost' })]);
  expect(await counted('failed')).toBe(1);
});

test('who hangs up is not served any more', async () => {
  scheduler.answerCall = () => undefined;
  let cut = (): void => undefined;
  const asking = ask('a', PUT, '{}', (hangUp) => (cut = hangUp));
  await until('the call to arrive', () => scheduler.calls[0]?.body.length === 2);
  cut();
  await expect(asking).rejects.toThrow();
  await until('the call to be cancelled', () => scheduler.calls[0]?.cancelled);
  expect(await counted('cut_off')).toBe(1);
});

test('a container has so many calls under way, and others have theirs', async () => {
  let go = (): void => undefined;
  const opened = new Promise<void>((resolve) => (go = resolve));
  scheduler.answerCall = () => undefined;
  const cuts: (() => void)[] = [];
  const waiting = Array.from({ length: 64 }, () => ask('a', PUT, '{}', (cut) => cuts.push(cut)).catch(() => undefined));
  await until('64 calls to arrive', () => scheduler.calls.length === 64);
  const { status, body } = await ask('a', PUT, '{}');
  expect([status, JSON.parse(body)]).toEqual([429, expect.objectContaining({ code: 'too_many_calls' })]);
  scheduler.answerCall = (call) => ({ status: 200, body: call.body });
  expect((await ask('b', PUT, '{}')).status).toBe(200);
  for (const cut of cuts) cut();
  go();
  await Promise.all([opened, ...waiting]);
  await until('room for more', () =>
    scheduler.calls.every(({ cancelled, head }) => cancelled || head.containerId === 'b'),
  );
  expect((await ask('a', PUT, '{}')).status).toBe(200);
});

test('containers that hold on to all they get leave room for one more', async () => {
  const greedy = Array.from({ length: 12 }, (_, index) => `greedy-${index}`);
  for (const containerId of greedy) await sockets.add({ containerId, epoch: 1 }, pathOf(containerId));
  scheduler.answerCall = () => undefined;
  const cuts: (() => void)[] = [];
  const answers: (Said | undefined)[] = [];
  const held = greedy.flatMap((containerId) =>
    Array.from({ length: 64 }, () =>
      ask(containerId, PUT, '{}', (cut) => cuts.push(cut)).then(
        (said) => answers.push(said),
        () => undefined,
      ),
    ),
  );
  await until('each call is held or refused', () => scheduler.calls.length + answers.length === held.length);
  expect(answers.every((said) => said?.status === 429)).toBe(true);
  expect(scheduler.calls.length).toBeGreaterThan(400);
  expect(scheduler.calls.length).toBeLessThan(512);
  scheduler.answerCall = (call) => ({ status: 200, body: call.body });
  expect((await ask('b', PUT, '{}')).status).toBe(200);
  for (const cut of cuts) cut();
  await Promise.all(held);
});

test('the socket goes with its container, and what is under way with it', async () => {
  scheduler.answerCall = () => undefined;
  const asking = ask('a', PUT, '{}');
  await until('the call to arrive', () => scheduler.calls.length === 1);
  sockets.end('a');
  await expect(asking).rejects.toThrow();
  await until('the call to be cancelled', () => scheduler.calls[0]?.cancelled);
  await expect(ask('a', PUT, '{}')).rejects.toThrow();
  scheduler.answerCall = (call) => ({ status: 200, body: call.body });
  expect((await ask('b', PUT, '{}')).status).toBe(200);
});
