// The life of an ASGI application in the real runner: its forms, `lifespan`, and the end of a task by a cancel.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect } from 'vitest';
import { appFiles, test } from '../helpers/asgi-runner.ts';

const errorOf = (text: string): string => String((JSON.parse(text) as { error: unknown }).error);

describe('tasks of the wrong sort', () => {
  test('an input for an application is an error that says so', async ({ start }) => {
    const files = appFiles("async def app(scope, receive, send):\n    assert scope['type'] == 'http'\n");
    const agent = await start({ files });
    expect(errorOf((await agent.call({})).body)).toContain('an ASGI application is called by HTTP requests');
  });

  test('so is a stream for any other handler', async ({ start }) => {
    const files = appFiles('def app():\n    return 1\n');
    const agent = await start({ files, env: { STUB_TYPE: 'endpoint/deployment' } });
    const { taskId } = await agent.run({ stream: true });
    expect(errorOf((await agent.answer(taskId)).body)).toContain('needs an ASGI application');
    expect((await agent.call({})).body).toBe('1');
  });
});

describe('the application', () => {
  const files = appFiles(`
from longshore import asgi
def load():
    return 'loaded'
made = []
@asgi(name='site')
def factory(context):
    made.append(context.on_start_value)
    async def inner(scope, receive, send):
        assert scope['type'] == 'http'
        from longshore import context as current
        await send({'type': 'http.response.start', 'status': 200})
        await send({'type': 'http.response.body', 'body': repr([made[-1], current.task_id]).encode()})
    return inner
@asgi
async def direct(scope, receive, send):
    await factory.local(type('C', (), {'on_start_value': 'direct'}))(scope, receive, send)
class App:
    async def __call__(self, scope, receive, send):
        await direct(scope, receive, send)
instance = App()
decorated = asgi(name='x')(instance)
async def later():
    return instance
def none():
    return 5
`);

  test.for([
    ['factory', 'loaded'],
    ['direct', 'direct'],
    ['instance', 'direct'],
    ['decorated', 'direct'],
    ['later', 'direct'],
  ] as const)('may be a %s', async ([name, made], { start }) => {
    const agent = await start({ files, handler: `app:${name}`, onStart: 'app:load' });
    const call = await agent.request();
    call.send('end');
    await call.ended();
    expect(call.body().toString()).toBe(`['${made}', 'task-1']`);
  });

  test('must be one', async ({ start }) => {
    const agent = await start({ files, handler: 'app:none' });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header).toEqual({
      phase: 'on_start',
      error: 'app:none returned a int, not an ASGI application',
    });
  });

  test('is not served by threads', async ({ start }) => {
    const agent = await start({ files, env: { WORKERS: '2', LONGSHORE_WORKER_MODE: 'thread' } });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header['error']).toContain("'thread' does not suit an ASGI application");
  });
});

describe('lifespan', () => {
  const files = appFiles(`
import os
HOW = os.environ.get('HOW', '')
async def app(scope, receive, send):
    if scope['type'] == 'lifespan':
        message = await receive()
        assert message['type'] == 'lifespan.startup', message
        print('starting')
        if HOW == 'raises':
            raise OSError('no database')
        if HOW == 'failed':
            await send({'type': 'lifespan.startup.failed', 'message': 'not today'})
            return
        scope['state']['value'] = [os.getpid()]
        await send({'type': 'lifespan.startup.complete'})
        assert (await receive())['type'] == 'lifespan.shutdown'
        open('stopped', 'a').write('stopped\\n')
        if HOW == 'hangs':
            import asyncio
            await asyncio.sleep(100)
        await send({'type': 'lifespan.shutdown.complete'})
        return
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body', 'body': repr(scope['state'].get('value')).encode()})
    scope['state']['value'] = 'changed'
`);
  const modes = [
    ['one process', {}, 'single'],
    ['forked', { WORKERS: '2' }, 'fork'],
    ['spawned', { WORKERS: '2', LONGSHORE_WORKER_MODE: 'spawn' }, 'spawn'],
  ] as const;

  test.for(modes)(
    '%s: starts before ready, its state is in each scope, and it stops',
    async ([, env, mode], { start }) => {
      const agent = await start({ files, env });
      expect((await agent.ready()).header['mode']).toBe(mode);
      const workers = mode === 'single' ? 1 : 2;
      for (let process = 0; process < workers; process += 1) {
        for (let round = 0; round < 2; round += 1) {
          const slot = await agent.slot(process);
          const call = await agent.request({}, slot);
          call.send('end');
          await call.ended();
          expect(call.body().toString()).toBe(`[${slot.pid}]`);
        }
      }
      agent.runner?.kill('SIGTERM');
      expect(await agent.exited()).toBe(0);
      expect(await readFile(join(agent.directory, 'code', 'stopped'), 'utf8')).toBe('stopped\n'.repeat(workers));
      expect(agent.lines().filter((line) => line.endsWith('starting'))).toHaveLength(workers);
    },
  );

  test.for(modes)('%s: a startup that raises is a start that failed', async ([, env], { start }) => {
    const agent = await start({ files, env: { ...env, HOW: 'raises' } });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header).toEqual({ phase: 'on_start', error: 'OSError: no database' });
    expect(agent.of('failed')[0]?.body.toString()).toMatch(/app\.py", line 10/);
    expect(agent.of('ready')).toHaveLength(0);
  });

  test.for(modes)('%s: a startup that says that it failed is one, too', async ([, env], { start }) => {
    const agent = await start({ files, env: { ...env, HOW: 'failed' } });
    expect(await agent.exited()).toBe(1);
    expect(agent.of('failed')[0]?.header).toEqual({ phase: 'on_start', error: 'LifespanError: not today' });
  });

  test('an application without it is served without it', async ({ start }) => {
    const agent = await start({
      files: appFiles(`
async def app(scope, receive, send):
    await receive()
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body'})
`),
    });
    const call = await agent.request();
    call.send('end');
    await call.ended();
    agent.runner?.kill('SIGTERM');
    expect(await agent.exited()).toBe(0);
  });

  test('a drain lets running requests end, then stops the application', async ({ start }) => {
    const agent = await start({
      files: appFiles(`
async def app(scope, receive, send):
    if scope['type'] == 'lifespan':
        await receive()
        await send({'type': 'lifespan.startup.complete'})
        await receive()
        print('stopping')
        await send({'type': 'lifespan.shutdown.complete'})
        return
    body = (await receive())['body']
    await send({'type': 'http.response.start', 'status': 200})
    await send({'type': 'http.response.body', 'body': body})
`),
    });
    const call = await agent.request({ method: 'POST' });
    (await agent.slot()).send('drain', { graceMs: 5000 });
    await pause(200);
    call.send('data', 'late');
    call.send('end');
    await call.ended();
    expect(call.body().toString()).toBe('late');
    expect((await agent.answer(call.taskId)).outcome).toBe('ok');
    expect(await agent.exited()).toBe(0);
    expect(agent.lines()).toEqual(['stdout  stopping']);
  });
});

// Most of these wait for the 5 s after which a task is ended, each in a runner of its own.
describe.concurrent('cancel', () => {
  const files = appFiles(`
import asyncio
async def app(scope, receive, send):
    assert scope['type'] != 'lifespan'
    await send({'type': 'websocket.accept'} if scope['type'] == 'websocket' else {'type': 'http.response.start', 'status': 200})
    await receive()
    if scope['path'] == '/done':
        await send({'type': 'http.response.body', 'body': b''})
        await asyncio.sleep(6)
        print('went on')
        return
    if scope['path'] == '/deaf':
        try:
            await asyncio.sleep(100)
        finally:
            print('ended')
    print((await receive())['type'])
`);

  test.for([
    ['timeout', 'timeout'],
    ['stopped by its owner', 'cancelled'],
  ] as const)('with reason %s is a disconnect at once', async ([reason, outcome], { start }) => {
    const agent = await start({ files });
    const call = await agent.request();
    call.send('end');
    await call.head();
    (await agent.slot()).send('cancel', { taskId: call.taskId, token: 'token-1', reason });
    // Less than the 5 s after which an application that takes no notice is ended.
    const answer = await agent.answer(call.taskId, 4500);
    expect([answer.outcome, agent.lines()]).toEqual([outcome, ['stdout task-1 http.disconnect']]);
    await call.over();
  });

  test('ends an application that takes no notice 5 s later', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request({ path: '/deaf' });
    call.send('end');
    await call.head();
    const began = Date.now();
    (await agent.slot()).send('cancel', { taskId: call.taskId, token: 'token-1', reason: 'x' });
    await call.over();
    expect(Date.now() - began).toBeLessThan(4500);
    const answer = await agent.answer(call.taskId);
    expect([answer.outcome, agent.lines()]).toEqual(['cancelled', ['stdout task-1 ended']]);
    expect(Date.now() - began).toBeGreaterThan(4500);
  });

  test.for(['http', 'websocket'])(
    'is not needed where the caller of a %s call leaves and the application takes no notice',
    async (type, { start }) => {
      const agent = await start({ files });
      const call = await agent.request({ type, path: '/deaf' });
      if (type === 'http') call.send('end');
      await call.head();
      const began = Date.now();
      call.connection.socket.destroy();
      const answer = await agent.answer(call.taskId, 30_000);
      expect([answer.outcome, agent.lines()]).toEqual(['cancelled', ['stdout task-1 ended']]);
      expect(Date.now() - began).toBeGreaterThan(4500);
    },
  );

  test('does not come for an application that goes on after its response', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request({ path: '/done' });
    call.send('end');
    await call.ended();
    call.connection.socket.destroy();
    const answer = await agent.answer(call.taskId, 30_000);
    expect([answer.outcome, agent.lines()]).toEqual(['ok', ['stdout task-1 went on']]);
  });

  test('of a task whose request has not come ends it', async ({ start }) => {
    const agent = await start({ files });
    const { taskId, token, connection } = await agent.run({ stream: true });
    await agent.stream(taskId);
    connection.send('cancel', { taskId, token, reason: 'x' });
    expect((await agent.answer(taskId)).outcome).toBe('cancelled');
  });
});
