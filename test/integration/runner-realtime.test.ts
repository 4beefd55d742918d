// `realtime` handlers in the real runner, over sockets of a fake agent.
import { describe, expect } from 'vitest';
import { appFiles, test } from '../helpers/asgi-runner.ts';
import { waitFor } from '../helpers/programs.ts';

const errorOf = (text: string): string => String((JSON.parse(text) as { error: unknown }).error);

describe('realtime', () => {
  const SOCKET = { type: 'websocket', scheme: 'ws' };
  const files = appFiles(`
import asyncio, threading, time
from longshore import realtime
def load():
    return 'model'
@realtime(on_start=load)
def handler(event, context):
    print('got', type(event).__name__)
    if event == 'raise':
        raise ValueError('ü' * 200)
    if event == 'none':
        return None
    if event == 'list':
        return [1, threading.current_thread().name.startswith('longshore-realtime')]
    if event == 'many':
        return (str(number) for number in range(3))
    if event == 'who':
        return context.task_id + context.on_start_value
    if event == 'sleep':
        time.sleep(1)
    return event
@realtime
async def awaited(event):
    await asyncio.sleep(0.001)
    return event
@realtime
async def many(event):
    for word in event.split():
        yield word
@realtime
def published(context):
    return {'this': context.on_start_value}
`);

  test('answers each message of a WebSocket', async ({ start }) => {
    const agent = await start({
      files,
      handler: 'app:handler',
      onStart: 'app:load',
      env: { CONCURRENT_REQUESTS: '2' },
    });
    const call = await agent.request(SOCKET);
    expect(await call.head()).toMatchObject({ accept: true });
    for (const text of ['{"a": 1}', 'none', 'list', 'many', 'who']) call.send('message', text, { text: true });
    call.send('message', 'raw', { text: false });
    await call.message(6);
    expect(call.messages()).toEqual([
      'text {"a": 1}',
      'text [1,true]',
      'text 0',
      'text 1',
      'text 2',
      'text task-1model',
      'bytes raw',
    ]);
    // Lines come on another connection.
    await waitFor(() => agent.lines()[0] === 'stdout task-1 got str', 'its first line is there');
    // A handler that sleeps holds up nobody else.
    call.send('message', 'sleep', { text: true });
    const other = await agent.request(SOCKET);
    other.send('message', 'quick', { text: true });
    expect(await other.message(0)).toBe('text quick');
    expect(call.messages()).toHaveLength(7);
    expect(await call.message(7)).toBe('text sleep');
    call.send('close', '', { code: 1000 });
    expect((await agent.answer(call.taskId)).body).toBe('{"code": 1000}');
  });

  test('a handler that raises closes with 1011 and its text', async ({ start }) => {
    const agent = await start({ files, handler: 'app:handler' });
    const call = await agent.request(SOCKET);
    call.send('message', 'raise', { text: true });
    const { code, reason } = await call.closed();
    expect([code, reason]).toEqual([1011, `ValueError: ${'ü'.repeat(55)}`]);
    const answer = await agent.answer(call.taskId);
    expect([answer.outcome, errorOf(answer.body)]).toEqual(['error', `ValueError: ${'ü'.repeat(200)}`]);
    expect(agent.lines()).toContain('stderr task-1 Traceback (most recent call last):');
  });

  test.for([
    ['awaited', ['text a b']],
    ['many', ['text a', 'text b']],
    ['published', ['text {"this":null}']],
  ] as const)('%s handlers', async ([name, answers], { start }) => {
    const agent = await start({ files, handler: `app:${name}` });
    const call = await agent.request(SOCKET);
    call.send('message', 'a b', { text: true });
    await call.message(answers.length - 1);
    expect(call.messages()).toEqual(answers);
  });

  // Handlers end seconds after a cancel, each in a runner of its own.
  describe.concurrent('whose caller has left, or whose task was stopped, while a handler runs,', () => {
    const endless = appFiles(`
import time
from longshore import realtime
@realtime
def handler(event):
    if event == 'quick':
        return event
    print('begun')
    try:
        if event == 'deaf':
            time.sleep(8)
        while True:
            time.sleep(0.01)
    finally:
        print('ended')
@realtime
def items(event):
    if event == 'quick':
        return event
    def every():
        while True:
            time.sleep(0.01)
            yield None
    return every()
`);

    test.for([
      ['handler', 'cancel'],
      ['handler', 'left'],
      ['items', 'cancel'],
    ] as const)('%s ends by %s, and its thread is free again', async ([handler, how], { start }) => {
      const agent = await start({ files: endless, handler: `app:${handler}` });
      const call = await agent.request(SOCKET);
      call.send('message', 'endless', { text: true });
      await call.head();
      if (how === 'left') call.connection.socket.destroy();
      else (await agent.slot()).send('cancel', { taskId: call.taskId, token: 'token-1', reason: 'x' });
      expect((await agent.answer(call.taskId, 30_000)).outcome).toBe('cancelled');
      if (handler === 'handler') expect(agent.lines()).toEqual(['stdout task-1 begun', 'stdout task-1 ended']);
      // The process has one slot, and so one thread.
      const other = await agent.request(SOCKET);
      other.send('message', 'quick', { text: true });
      expect(await other.message(0)).toBe('text quick');
    });

    test('the task lasts as long as a handler that cannot be ended', async ({ start }) => {
      const agent = await start({ files: endless, handler: 'app:handler' });
      const call = await agent.request(SOCKET);
      call.send('message', 'deaf', { text: true });
      await call.head();
      const began = Date.now();
      (await agent.slot()).send('cancel', { taskId: call.taskId, token: 'token-1', reason: 'x' });
      expect((await agent.answer(call.taskId, 30_000)).outcome).toBe('cancelled');
      // Else its agent would not know that the process has to be killed.
      expect(Date.now() - began).toBeGreaterThan(7000);
      expect(agent.lines()).toEqual(['stdout task-1 begun', 'stdout task-1 ended']);
    });
  });

  test('a plain request is told to upgrade', async ({ start }) => {
    const agent = await start({ files, handler: 'app:handler' });
    const call = await agent.request();
    call.send('end');
    await call.ended();
    expect(await call.head()).toMatchObject({ status: 426 });
  });
});
