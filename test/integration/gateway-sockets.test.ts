// The sockets that containers call the platform through, with a real link behind them and no container in front. The
// tests cover the calls that pass, their bounds, and the answers when none can pass.
import { mkdtempSync, rmSync } from 'node:fs';
import { Agent, request } from 'node:http';
import type { Socket } from 'node:net';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import { CallBudget } from '#agent/slots/budget.ts';
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

/** @param hangUp - called with a function that cuts the request off */
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
    stalledMs: 300,
    budget: () => new CallBudget(10, 1000),
  });
  sockets.onViolation((containerId, rule) => violations.push(`${containerId} ${rule}`));
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
  'GET http://gateway/metrics',
])('what is not on the list never leaves the machine: %s', async (line) => {
  const { status, body } = await ask('a', line);
  expect([status, JSON.parse(body)]).toEqual([
    403,
    expect.objectContaining({ ok: false, errMsg: 'Unauthorized Access', code: 'not_allowed' }),
  ]);
  expect(scheduler.calls).toEqual([]);
  expect(await counted('refused')).toBe(1);
});

test('an absolute target means its path, and a target that is none is refused', async () => {
  expect((await ask('a', 'GET http://gateway/api/v1/gateway/tasks?a=1')).status).toBe(200);
  expect(scheduler.calls.map(({ head }) => head.path)).toEqual(['/api/v1/gateway/tasks?a=1']);
  expect((await ask('a', 'GET *')).status).toBe(400);
  expect((await ask('a', 'GET ftp://gateway/api/v1/gateway/tasks')).status).toBe(400);
  expect(scheduler.calls.length).toBe(1);
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

test('a body that stands still is answered 408, and one that waits for the platform is not', async () => {
  const slow = request({ socketPath: pathOf('a'), method: 'POST', path: '/taskqueue/q', agent: false });
  slow.setHeader('content-length', 10);
  const answered = new Promise<number>((resolve, reject) => {
    slow.on('response', (answer) => resolve(answer.resume().statusCode ?? 0));
    slow.on('error', reject);
  });
  slow.write('{');
  scheduler.answerCall = () => undefined;
  const waits = ask('b', PUT, '{}');
  let isOver = false;
  void waits.catch(() => undefined).finally(() => (isOver = true));
  expect(await answered).toBe(408);
  await until('the call to be cancelled', () =>
    scheduler.calls.some(({ head, cancelled }) => head.containerId === 'a' && cancelled),
  );
  // The call of `b` began before the other one stalled, and its answer is not due.
  expect(isOver).toBe(false);
  sockets.end('b');
  await expect(waits).rejects.toThrow();
});

test('an answer that is not read is cut off', async () => {
  scheduler.answerCall = () => ({ status: 200, body: Buffer.alloc(32 * 1024 * 1024) });
  const asked = request(
    { socketPath: pathOf('a'), method: 'POST', path: '/taskqueue/q', agent: false },
    (answer) => void answer.pause(),
  );
  asked.on('error', () => undefined);
  asked.end('{}');
  await until('the answer to be cut off', () => scheduler.calls[0]?.cancelled);
  expect(await counted('cut_off')).toBe(1);
  asked.destroy();
});

test('refusals that a container does not heed end it, and no other', async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 32 });
  const refused = (): Promise<void> =>
    new Promise((resolve) => {
      const asked = request({ socketPath: pathOf('a'), path: '/metrics', agent }, (answer) => {
        answer.resume();
        answer.on('close', () => resolve());
      });
      asked.on('error', () => resolve());
      asked.end();
    });
  for (let round = 0; violations.length === 0; round += 1) {
    expect(round).toBeLessThan(200);
    await Promise.all(Array.from({ length: 32 }, refused));
  }
  agent.destroy();
  expect(violations).toEqual(['a calls']);
  await expect(ask('a', PUT, '{}')).rejects.toThrow();
  expect((await ask('b', PUT, '{}')).status).toBe(200);
});

test('connections beyond what calls need are closed', async () => {
  const idle = await Promise.all(
    Array.from({ length: 200 }, () => {
      const socket = connect(pathOf('a'));
      return new Promise<Socket>((resolve) => {
        socket.on('error', () => undefined);
        socket.once('connect', () => resolve(socket));
      });
    }),
  );
  await until(
    'those above the bound to be closed',
    () => idle.filter(({ readableEnded, destroyed }) => readableEnded || destroyed).length >= 200 - 128,
  );
  expect((await ask('b', PUT, '{}')).status).toBe(200);
  expect(violations).toEqual([]);
  for (const socket of idle) socket.destroy();
});
