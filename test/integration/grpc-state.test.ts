// Maps, queues, signals and outputs over gRPC, on a real scheduler: as published clients see them, and beside REST.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { GrpcClient } from '../helpers/grpc-client.ts';
import { waitFor } from '../helpers/programs.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

type Message = Readonly<Record<string, unknown>>;

const MAP = 'map.MapService';
const QUEUE = 'simplequeue.SimpleQueueService';
const SIGNAL = 'signal.SignalService';
const OUTPUT = 'output.OutputService';
const MIB = 1024 * 1024;

let platform: Platform;
let client: GrpcClient;
beforeAll(async () => {
  platform = await aPlatform({}, 'embedded');
  client = new GrpcClient(platform.grpcAddress);
}, 120_000);
afterAll(async () => {
  client.close();
  await platform.stop();
});

async function call(path: string, message: Message = {}, token = platform.own.token): Promise<Message> {
  const { code, details, answer } = await client.call(path, message, { token });
  expect([code, details]).toEqual([0, '']);
  return answer ?? {};
}
const rest = (line: string, body?: unknown) =>
  platform.call(line.replace(' /', ' /api/v1/').replace('{ws}', platform.own.workspaceId), body);
/** Bytes in the form of the client's helper. */
const bytes = (text: string): string => Buffer.from(text).toString('base64');
/** Pickle of `True`, as Python writes it. */
const TRUE = Buffer.from([0x80, 5, 0x88, 0x2e]).toString('base64');

describe('a map', () => {
  test('has what was set, until it is deleted', async () => {
    expect(await call(`${MAP}/MapSet`, { name: 'm', key: 'a', value: TRUE, ttl: '60' })).toEqual({
      ok: true,
      err_msg: '',
    });
    expect(await call(`${MAP}/MapSet`, { name: 'm', key: 'b', value: TRUE })).toMatchObject({ ok: true });
    expect(await call(`${MAP}/MapGet`, { name: 'm', key: 'a' })).toEqual({ ok: true, value: TRUE });
    expect(await call(`${MAP}/MapCount`, { name: 'm' })).toEqual({ ok: true, count: 2 });
    expect(await call(`${MAP}/MapKeys`, { name: 'm' })).toEqual({ ok: true, keys: ['a', 'b'] });
    expect(await call(`${MAP}/MapDelete`, { name: 'm', key: 'a' })).toEqual({ ok: true });
    expect(await call(`${MAP}/MapDelete`, { name: 'm', key: 'a' })).toEqual({ ok: false });
    expect(await call(`${MAP}/MapGet`, { name: 'm', key: 'a' })).toEqual({ ok: false, value: '' });
  });

  test('is that of REST: values pass as they are, and JSON is told pickled', async () => {
    await call(`${MAP}/MapSet`, { name: 'shared', key: 'pickled', value: TRUE });
    const { json } = await rest('GET /map/{ws}/entry?name=shared&key=pickled');
    expect(json).toMatchObject({ encoding: 'pickle', value: TRUE });
    await rest('PUT /map/{ws}/entry', { name: 'shared', key: 'json', encoding: 'json', value: '[true]' });
    const { value } = await call(`${MAP}/MapGet`, { name: 'shared', key: 'json' });
    const told = Buffer.from(String(value), 'base64').toString('latin1');
    expect([told.slice(2, 14), told.slice(19, 25)]).toEqual(['cjson\nloads\n', '[true]']);
  });

  test('of another workspace has other values', async () => {
    await call(`${MAP}/MapSet`, { name: 'own', key: 'a', value: TRUE });
    const { token } = platform.other;
    expect(await call(`${MAP}/MapGet`, { name: 'own', key: 'a' }, token)).toMatchObject({ ok: false });
    expect(await call(`${MAP}/MapKeys`, { name: 'own' }, token)).toMatchObject({ keys: [] });
    expect(await call(`${MAP}/MapCount`, { name: 'own' }, token)).toMatchObject({ count: 0 });
    expect(await call(`${MAP}/MapDelete`, { name: 'own', key: 'a' }, token)).toMatchObject({ ok: false });
    expect(await call(`${MAP}/MapGet`, { name: 'own', key: 'a' })).toMatchObject({ ok: true });
  });

  test('refuses what it cannot keep, and names it', async () => {
    const set = async (said: Message): Promise<unknown> => {
      const answer = await call(`${MAP}/MapSet`, { name: 'm', key: 'k', value: TRUE, ...said });
      expect(answer['ok']).toBe(false);
      return answer['err_msg'];
    };
    expect(await set({ name: '' })).toContain('name');
    expect(await set({ key: 'x'.repeat(501) })).toContain('key');
    expect(await set({ value: Buffer.alloc(750_001).toString('base64') })).toContain('750000 bytes');
    for (const ttl of ['-1', String(7 * 86_400 + 1)]) expect(await set({ ttl })).toContain('ttl');
  });

  test('with more keys than a page tells all of them', async () => {
    const keys = Array.from({ length: 1_100 }, (_, n) => `k${String(n).padStart(5, '0')}`);
    for (let from = 0; from < keys.length; from += 50)
      await Promise.all(
        keys.slice(from, from + 50).map((key) => call(`${MAP}/MapSet`, { name: 'many', key, value: TRUE })),
      );
    expect((await call(`${MAP}/MapKeys`, { name: 'many' }))['keys']).toEqual(keys);
  }, 60_000);
});

test('a queue gives items in their order, and nothing once it is empty', async () => {
  const named = { name: 'q' };
  expect(await call(`${QUEUE}/SimpleQueueEmpty`, named)).toEqual({ ok: true, empty: true });
  for (const item of ['1', '2'])
    expect(await call(`${QUEUE}/SimpleQueuePut`, { ...named, value: bytes(item) })).toEqual({ ok: true });
  expect(await call(`${QUEUE}/SimpleQueueSize`, named)).toEqual({ ok: true, size: '2' });
  expect(await call(`${QUEUE}/SimpleQueuePeek`, named)).toEqual({ ok: true, value: bytes('1') });
  expect(await call(`${QUEUE}/SimpleQueueSize`, named, platform.other.token)).toMatchObject({ size: '0' });
  for (const item of ['1', '2'])
    expect(await call(`${QUEUE}/SimpleQueuePop`, named)).toEqual({ ok: true, value: bytes(item) });
  for (const name of ['SimpleQueuePop', 'SimpleQueuePeek'])
    expect(await call(`${QUEUE}/${name}`, named)).toEqual({ ok: true, value: '' });
  expect(await call(`${QUEUE}/SimpleQueuePut`, { name: '', value: TRUE })).toEqual({ ok: false });
});

describe('a signal', () => {
  test('is told to those who watch it: when it is set, set again, and cleared', async () => {
    const named = { name: 's' };
    const watch = (token: string) => {
      const seen: unknown[] = [];
      const stream = client.open(`${SIGNAL}/SignalMonitor`, named, { token });
      const read = async (): Promise<void> => {
        for (let next = await stream.next(); next !== undefined; next = await stream.next()) seen.push(next['set']);
      };
      void read();
      return { seen, stream };
    };
    const own = watch(platform.own.token);
    const others = watch(platform.other.token);
    const shows = (wanted: readonly boolean[]) =>
      waitFor(() => own.seen.length >= wanted.length, `the watcher is told ${String(wanted)}`, 30_000);
    await shows([false]);
    expect(await call(`${SIGNAL}/SignalSet`, { ...named, ttl: '60' })).toEqual({ ok: true });
    await shows([false, true]);
    expect(await call(`${SIGNAL}/SignalSet`, named)).toEqual({ ok: true });
    await shows([false, true, true]);
    const late = watch(platform.own.token);
    await waitFor(() => late.seen.length > 0, 'a later watcher is told', 30_000);
    expect(late.seen).toEqual([true]);
    expect(await call(`${SIGNAL}/SignalClear`, named)).toEqual({ ok: true });
    await shows([false, true, true, false]);
    expect([own.seen, others.seen]).toEqual([[false, true, true, false], [false]]);
    for (const { stream } of [own, others, late]) stream.cancel();
  }, 120_000);

  test('that cannot be is refused', async () => {
    expect(await call(`${SIGNAL}/SignalSet`, { name: '' })).toEqual({ ok: false });
    expect(await call(`${SIGNAL}/SignalSet`, { name: 's', ttl: '-5' })).toEqual({ ok: false });
    const { token } = platform.own;
    const watched = await client.stream(`${SIGNAL}/SignalMonitor`, { name: '' }, { token });
    expect(watched).toMatchObject({ code: 3, details: expect.stringContaining('name') as string });
  });
});

describe('an output', () => {
  let task = '';
  beforeAll(async () => {
    await platform.deploy('saves', { stubType: 'taskqueue/deployment' });
    task = String((await platform.call('POST /taskqueue/saves', {})).json['task_id']);
  });
  const outputs = async (): Promise<Json[]> => {
    const tasks = (await rest('GET /task/{ws}')).json['data'] as Json[];
    return tasks.find((one) => one['id'] === task || one['external_id'] === task)?.['outputs'] as Json[];
  };
  const save = (messages: readonly Message[], token = platform.own.token, whole = true) =>
    client.send(`${OUTPUT}/OutputSaveStream`, messages, { token }, whole);
  const piece = (content: Buffer, said: Message = {}): Message => ({
    taskId: task,
    filename: 'a.bin',
    content: content.toString('base64'),
    ...said,
  });

  test('comes in pieces, and is read at its address', async () => {
    const whole = Buffer.alloc(9 * MIB + 5, 'longshore');
    const pieces = [0, 4, 8].map((at) => piece(whole.subarray(at * MIB, (at + 4) * MIB)));
    const { answer } = await save(pieces);
    expect(answer).toMatchObject({ ok: true, err_msg: '', id: expect.stringMatching(/^[0-9a-f-]{36}$/) as string });
    const named = { id: answer?.['id'], taskId: task, filename: 'a.bin' };
    const { stat } = await call(`${OUTPUT}/OutputStat`, named);
    expect(stat).toMatchObject({
      mode: '0o644',
      size: String(whole.length),
      mtime: { nanos: expect.any(Number) as number },
    });
    const { public_url: url } = await call(`${OUTPUT}/OutputPublicURL`, { ...named, expires: 60 });
    const read = await fetch(String(url));
    expect(Buffer.from(await read.arrayBuffer()).equals(whole)).toBe(true);
    expect(await outputs()).toMatchObject([{ name: 'a.bin' }]);

    const { token } = platform.other;
    for (const name of ['OutputStat', 'OutputPublicURL']) {
      const refusal = { ok: false, err_msg: 'output not found' };
      expect(await call(`${OUTPUT}/${name}`, named, token)).toMatchObject(refusal);
      expect(await call(`${OUTPUT}/${name}`, { ...named, taskId: NOBODY })).toMatchObject(refusal);
    }
    expect((await save([piece(Buffer.from('x'))], 'nobody')).code).toBe(16);
    expect((await save([piece(Buffer.from('x'))], token)).answer).toMatchObject({
      ok: false,
      err_msg: 'task not found',
    });
    expect(await call(`${OUTPUT}/OutputPublicURL`, { ...named, expires: 8 * 86_400 })).toMatchObject({ ok: false });
  }, 60_000);

  test('may be empty', async () => {
    const { answer } = await save([piece(Buffer.alloc(0))]);
    expect(answer).toMatchObject({ ok: true });
    expect(await call(`${OUTPUT}/OutputStat`, { id: answer?.['id'], taskId: task })).toMatchObject({
      stat: { size: '0' },
    });
  });

  test('of no task, or without a name, is refused; nothing is kept of one whose caller left', async () => {
    const before = (await outputs()).length;
    expect((await save([piece(Buffer.from('x'), { taskId: NOBODY })])).answer).toMatchObject({
      ok: false,
      err_msg: 'task not found',
    });
    expect((await save([piece(Buffer.from('x'), { filename: 'a/b' })])).answer?.['err_msg']).toContain('name');
    expect((await save([])).answer?.['ok']).toBe(false);
    expect((await save([piece(Buffer.alloc(MIB))], platform.own.token, false)).code).toBe(1);
    // The next call of this connection is answered after the one that was cut off has ended.
    expect((await save([piece(Buffer.from('y'))])).answer).toMatchObject({ ok: true });
    expect(await outputs()).toHaveLength(before + 1);
  });
});

test('calls count in the rate of shared values', async () => {
  const bounded = await aPlatform({ LONGSHORE_RATE_LIMITS: 'on' }, 'embedded');
  const { workspaceId, token } = bounded.own;
  const changed = await bounded.call(
    `PUT /api/v1/workspace/${workspaceId}/limits`,
    { rate: { state_per_minute: 2 } },
    { token: bounded.admin.token },
  );
  expect(changed.status).toBe(200);
  const to = new GrpcClient(bounded.grpcAddress);
  const answers: unknown[] = [];
  for (let n = 0; n < 4; n += 1) {
    const { answer } = await to.call(`${MAP}/MapSet`, { name: 'm', key: 'k', value: TRUE }, { token });
    answers.push(answer?.['ok']);
  }
  to.close();
  await bounded.stop();
  expect(answers).toContain(false);
  expect(answers[0]).toBe(true);
}, 60_000);
