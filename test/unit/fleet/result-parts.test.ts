import { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { AttemptToken, MachineId, TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { TaskChunk__Output, TaskToAgent } from '#shared/protocol/generated/messages.ts';
import type { Standing } from '#scheduler/fleet/result-parts.ts';
import { PartsBudget, ResultParts } from '#scheduler/fleet/result-parts.ts';
import type { TaskCall } from '#scheduler/fleet/task-stream.ts';
import type { StreamedTasks } from '#scheduler/fleet/task-stream.ts';
import { TaskStream } from '#scheduler/fleet/task-stream.ts';

const MIB = 1024 * 1024;
const KNOWN = 'one' as WorkspaceId;
const chunk = (token: string, seq: number, data: Buffer): TaskChunk__Output => ({ taskId: 't', token, seq, data });
/** All parts share these bytes, so the test takes less memory than it counts. */
const DATA = Buffer.alloc(MIB);

/** Keeps parts until there is room for no more. @returns how many MiB */
function fill(parts: ResultParts, standing: Standing = KNOWN): number {
  for (let at = 0; at < 2000; at += 1) parts.keep(chunk(`token-${at}`, 0, DATA), standing);
  return Math.floor(parts.bytes / MIB);
}

test('parts come together in order, once, and their room comes back', () => {
  const budget = new PartsBudget();
  const parts = new ResultParts(budget, MIB);
  parts.keep(chunk('a', 0, Buffer.from('1')), KNOWN);
  parts.keep(chunk('a', 2, Buffer.from('3')), KNOWN);
  parts.keep(chunk('a', 1, Buffer.from('2')), KNOWN);
  expect(budget.bytes).toBeGreaterThan(0);
  expect(Buffer.concat(parts.take('a', 2) as Buffer[]).toString()).toBe('12');
  expect(budget.bytes).toBe(0);
  expect(parts.take('a', 2)).toBe('incomplete');
});

test('a part without its first one is not kept, nor is its token', () => {
  const budget = new PartsBudget();
  const parts = new ResultParts(budget, MIB);
  for (let at = 0; at < 1000; at += 1) parts.keep(chunk(`${'k'.repeat(1000)}${at}`, 1, DATA), KNOWN);
  expect([parts.bytes, budget.bytes]).toEqual([0, 0]);
});

test('a stream has its bound, all streams have one together, and another one has room in it', () => {
  const budget = new PartsBudget();
  expect(fill(new ResultParts(budget, 64 * MIB), 'named')).toBeLessThanOrEqual(64);
  for (let machine = 0; machine < 20; machine += 1)
    expect(fill(new ResultParts(budget, 64 * MIB))).toBeLessThanOrEqual(256);
  expect(budget.bytes).toBeLessThan(budget.mostBytes);
  const late = new ResultParts(new PartsBudget(), 64 * MIB);
  expect(fill(late)).toBeGreaterThan(200);
  late.dropAll();
  expect(late.bytes).toBe(0);
});

test('the machines of one workspace leave room for the results of another, however many they are', () => {
  const budget = new PartsBudget();
  const streams = Array.from({ length: 20 }, () => new ResultParts(budget, 64 * MIB));
  const strangers = Array.from({ length: 20 }, () => new ResultParts(budget, 64 * MIB));
  for (const stream of streams) fill(stream);
  // The last part may go over the half.
  expect(budget.bytes / MIB).toBeLessThan(258);
  for (const stream of strangers) fill(stream, 'named');
  expect(fill(new ResultParts(budget, 64 * MIB), 'two' as WorkspaceId)).toBeGreaterThan(60);
  for (const stream of [...streams, ...strangers]) stream.dropAll();
  expect(budget.bytes / MIB).toBeLessThan(100);
});

test('parts that came before their attempt was taken over are its workspace’s from then on', () => {
  const budget = new PartsBudget();
  const parts = new ResultParts(budget, 256 * MIB);
  for (let seq = 0; seq < 60; seq += 1) parts.keep(chunk('a', seq, DATA), 'named');
  for (let seq = 60; seq < 120; seq += 1) parts.keep(chunk('a', seq, DATA), KNOWN);
  expect(parts.take('a', 120)).toHaveLength(120);
  expect([budget.bytes, budget.hasRoom(128 * MIB, 'named'), budget.hasRoom(512 * MIB, KNOWN)]).toEqual([0, true, true]);
});

test('a result above its bound is too large, and a small part keeps no large message alive', () => {
  const parts = new ResultParts(new PartsBudget(), 2 * MIB);
  for (let seq = 0; seq < 4; seq += 1) parts.keep(chunk('a', seq, DATA), KNOWN);
  expect(parts.take('a', 4)).toBe('too_large');
  parts.keep(chunk('b', 0, DATA.subarray(0, 1)), KNOWN);
  const [kept] = parts.take('b', 1) as Buffer[];
  expect(kept?.buffer.byteLength).toBe(1);
});

interface Stream {
  readonly budget: PartsBudget;
  readonly call: EventEmitter;
  readonly written: TaskToAgent[];
  paused: boolean;
}

function aStream(tasks: { readonly attempts?: object; readonly reports?: object }): Stream {
  const stream: Stream = { budget: new PartsBudget(), call: new EventEmitter(), written: [], paused: false };
  Object.assign(stream.call, {
    end: () => undefined,
    pause: () => (stream.paused = true),
    resume: () => (stream.paused = false),
    write: (message: TaskToAgent, done?: () => void) => {
      stream.written.push(message);
      done?.();
    },
  });
  new TaskStream({
    machineId: 'mine' as MachineId,
    agentInstance: 'agent-1',
    sessionEpoch: 1,
    heartbeatIntervalMs: 10_000,
    call: stream.call as unknown as TaskCall,
    tasks: {
      attempts: { find: () => undefined, revoked: () => undefined, ...tasks.attempts },
      reports: { maxResultBytes: 64 * MIB, item: () => undefined, ...tasks.reports },
      leases: { flush: () => undefined },
    } as unknown as StreamedTasks,
    budget: stream.budget,
    log: createLog({ name: 'test', level: 'silent' }),
    onReady: () => undefined,
    onEnd: () => undefined,
    isCurrent: () => Promise.resolve(true),
  });
  return stream;
}

test('parts for tokens that nobody knows, or of another machine’s attempt, are kept nowhere', () => {
  const find = (taskId: TaskId) => (taskId === 'theirs' ? { machineId: 'other' } : undefined);
  const { budget, call } = aStream({ attempts: { find, revoked: () => ({ machineId: 'other' }) } });
  for (const taskId of ['nobody’s', 'theirs'])
    for (let at = 0; at < 100; at += 1)
      call.emit('data', { chunk: { taskId, token: `token-${at}`, seq: at % 2, data: DATA } });
  expect(budget.bytes).toBe(0);
});

test('parts of what the machine’s report names are kept, until the report is answered that it is not wanted', async () => {
  const live = { taskId: 'a', token: 'token-a', containerId: 'c' };
  const answered = Promise.withResolvers<object>();
  const { budget, call, written } = aStream({ reports: { machineReported: () => answered.promise } });
  call.emit('data', { report: { running: [live], finished: [], more: false } });
  call.emit('data', { chunk: { ...live, seq: 0, data: DATA } });
  expect(budget.bytes).toBeGreaterThan(MIB);
  answered.resolve({ adopted: [], refused: [live] });
  await expect.poll(() => written.length).toBe(1);
  expect(budget.bytes).toBe(0);
  call.emit('data', { chunk: { ...live, seq: 0, data: DATA } });
  expect(budget.bytes).toBe(0);
});

test('a report in several messages counts when the last one has come', async () => {
  const reports: { running: readonly { token: AttemptToken }[] }[] = [];
  const { call } = aStream({
    reports: {
      machineReported: (_machine: MachineId, report: (typeof reports)[number]) => {
        reports.push(report);
        return Promise.resolve({ adopted: [], refused: [] });
      },
    },
  });
  const part = (token: string, more: boolean): object => ({
    running: [{ taskId: 't', token, containerId: 'c' }],
    finished: [],
    more,
  });
  // A name beyond the longest allowed one is ignored.
  call.emit('data', { report: part('x'.repeat(100_000), true) });
  call.emit('data', { report: part('a', true) });
  call.emit('data', { report: part('b', true) });
  expect(reports).toEqual([]);
  call.emit('data', { report: part('c', false) });
  expect(reports.map(({ running }) => running.map(({ token }) => token))).toEqual([['a', 'b', 'c']]);
});

test('a stream whose results cannot be taken as fast as they come is not read on until they are', async () => {
  const taken = Promise.withResolvers<boolean>();
  const stream = aStream({ reports: { result: () => taken.promise } });
  for (let at = 0; at < 600; at += 1)
    stream.call.emit('data', {
      result: { taskId: `t${at}`, token: 'x', outcome: 'ok', chunks: 0, body: Buffer.from('1') },
    });
  expect(stream.paused).toBe(true);
  taken.resolve(false);
  await expect.poll(() => stream.paused).toBe(false);
});

test('results whose end is decided do not hold a stream up, and are acknowledged once they are recorded', async () => {
  const recorded = Promise.withResolvers<boolean>();
  const result = (_machine: unknown, _result: unknown, onDecided?: () => void): Promise<boolean> => {
    onDecided?.();
    return recorded.promise;
  };
  const stream = aStream({ reports: { result } });
  for (let at = 0; at < 1_000; at += 1)
    stream.call.emit('data', {
      result: { taskId: `t${at}`, token: 'x', outcome: 'ok', chunks: 0, body: Buffer.from('1') },
    });
  expect(stream.paused).toBe(false);
  expect(stream.written).toEqual([]);
  recorded.resolve(true);
  await expect.poll(() => JSON.stringify(stream.written).match(/acked/g)?.length).toBe(1_000);
});

test('parts of an attempt that was ended here are kept: its result may still count', () => {
  const { budget, call } = aStream({ attempts: { find: () => undefined, revoked: () => ({ machineId: 'mine' }) } });
  call.emit('data', { chunk: chunk('token', 0, DATA) });
  expect(budget.bytes).toBeGreaterThan(MIB);
});
