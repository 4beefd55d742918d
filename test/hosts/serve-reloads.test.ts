// Saves under `longshore serve` while calls run: a real scheduler, agent and containers.
import { describe, expect } from 'vitest';
import { WebSocket } from 'ws';
import { test } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { ServeCommand } from '../helpers/serve-command.ts';

const APP = `
import time
from longshore import endpoint

@endpoint(cpu="200m", memory=256)
def hello(s=0):
    time.sleep(s)
    return "v1"
`;

const SEVERAL = `
import asyncio
from longshore import endpoint

@endpoint(cpu="200m", memory=256, concurrent_requests=4)
async def hello(s=0):
    await asyncio.sleep(s)
    return "v1"
`;

const STREAMED = `
import asyncio
from longshore import asgi

@asgi(cpu="200m", memory=256, concurrent_requests=4)
def hello():
    async def app(scope, receive, send):
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] == "websocket.receive":
                await send({"type": "websocket.send", "text": "v1 " + message["text"]})
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(1 + 10 * int(scope["query_string"] or 0)):
                await send({"type": "http.response.body", "body": b"v1 ", "more_body": True})
                await asyncio.sleep(0.1)
            await send({"type": "http.response.body"})
    return app
`;

const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Begins a call, and gives its name to `order` when it is over. */
async function call(serve: ServeCommand, order: string[], name: string, input: object): Promise<string> {
  const { status, body } = await serve.call(input);
  order.push(name);
  return status === 200 ? body : `${status} ${body}`;
}

async function served(platform: Platform, name: string, text: string): Promise<ServeCommand> {
  const serve = new ServeCommand(platform, name, { 'app.py': text });
  await serve.serving();
  return serve;
}

describe('a save while calls run', () => {
  test('the next call is answered by the new code beside the running one, which ends with its own answer', async ({
    platform,
  }) => {
    const serve = await served(platform, 'beside', APP);
    const order: string[] = [];
    expect(await call(serve, order, 'first', {})).toBe('"v1"');
    const running = call(serve, order, 'running', { s: 5 });
    await after(1000);
    serve.save('app.py', APP.replace('v1', 'v2'));
    await after(500);
    expect(await call(serve, order, 'next', { s: 0 })).toBe('"v2"');
    expect(await running).toBe('"v1"');
    expect(order).toEqual(['first', 'next', 'running']);
    expect(await call(serve, order, 'last', {})).toBe('"v2"');
    await serve.end();
  });

  test('calls that wait for the one slot go to the new code at once', async ({ platform }) => {
    const serve = await served(platform, 'waits', APP);
    const order: string[] = [];
    await call(serve, order, 'first', {});
    const running = call(serve, order, 'running', { s: 5 });
    await after(500);
    const waiting = ['a', 'b', 'c'].map((name) => call(serve, order, name, { s: 0 }));
    await after(300);
    serve.save('app.py', APP.replace('v1', 'v2'));
    expect(await Promise.all(waiting)).toEqual(['"v2"', '"v2"', '"v2"']);
    expect(await running).toBe('"v1"');
    expect(order.at(-1)).toBe('running');
    await serve.end();
  });

  test('code that cannot be imported fails the next call, and not the one that runs', async ({ platform }) => {
    const serve = await served(platform, 'broken', APP);
    const order: string[] = [];
    const running = call(serve, order, 'running', { s: 4 });
    await after(500);
    expect(await serve.reloaded('app.py', 'def hello(:\n')).toMatchObject({ state: 'failed' });
    expect(await call(serve, order, 'next', {})).toMatch(/^500 .*SyntaxError/);
    expect(await serve.reloaded('app.py', APP.replace('v1', 'v3'))).toMatchObject({ state: 'loaded' });
    expect(await call(serve, order, 'mended', {})).toBe('"v3"');
    expect(await running).toBe('"v1"');
    expect(order).toEqual(['next', 'mended', 'running']);
    await serve.end();
  });

  test('a call that runs for more than 10 s fails, and its error names the reload', async ({ platform }) => {
    const serve = await served(platform, 'long', APP);
    const order: string[] = [];
    const running = call(serve, order, 'running', { s: 60 });
    await after(500);
    await serve.reloaded('app.py', APP.replace('v1', 'v2'));
    expect(await call(serve, order, 'next', {})).toBe('"v2"');
    expect(await running).toMatch(/^500 \{"error":"ended by a reload: the call still ran 10 s after files were saved"/);
    // The line has the call's task, as all that the call printed.
    await serve.until(
      'the line',
      ({ message = '', task_id: taskId = '' }) =>
        message.startsWith('longshore: ended by a reload: the call still ran') && taskId !== '',
    );
    expect(await call(serve, order, 'last', {})).toBe('"v2"');
    await serve.end();
  });

  test('several saves in a row, under calls all the time, fail none', async ({ platform }) => {
    const serve = await served(platform, 'row', SEVERAL);
    let isOver = false;
    const bodies: string[] = [];
    const caller = async (s: number): Promise<void> => {
      while (!isOver) bodies.push(await call(serve, [], '', { s }));
    };
    const callers = [0, 0.05, 0.3, 1].map(caller);
    for (let round = 2; round <= 9; round += 1) {
      serve.save('app.py', SEVERAL.replace('v1', `v${round}`));
      await after(round % 2 === 0 ? 90 : 500);
    }
    await serve.until('the last reload', ({ kind }) => kind === 'reloaded');
    await after(1500);
    isOver = true;
    await Promise.all(callers);
    expect(bodies.filter((body) => !/^"v\d"$/.test(body))).toEqual([]);
    expect(bodies.length).toBeGreaterThan(20);
    expect(bodies.at(-1)).toBe('"v9"');
    await serve.end();
  });

  test('a WebSocket and a streamed answer go on, and are ended by name after 10 s', async ({ platform }) => {
    const serve = await served(platform, 'streams', STREAMED);
    const { url = '' } = await serve.serving();
    const headers = { authorization: `Bearer ${platform.token}` };
    const get = async (query: string): Promise<string> => (await fetch(`${url}?${query}`, { headers })).text();
    const socket = new WebSocket(url.replace(/^http/, 'ws'), { headers });
    const messages: string[] = [];
    socket.on('message', (data: Buffer) => messages.push(data.toString()));
    const closed = new Promise<string>((resolve) =>
      socket.on('close', (code, reason) => resolve(`${code} ${reason.toString()}`)),
    );
    await new Promise((resolve) => socket.once('open', resolve));
    const whole = get('3');
    const cut = get('60').then(
      (text) => `whole ${text.length}`,
      () => 'cut',
    );
    await after(700);
    await serve.reloaded('app.py', STREAMED.replaceAll('v1', 'v2'));
    expect(await get('0')).toBe('v2 ');
    socket.send('still');
    expect(await whole).toBe('v1 '.repeat(31));
    expect(messages).toEqual(['v1 still']);
    expect(await closed).toBe('1012 ended by a reload');
    expect(await cut).toBe('cut');
    expect(await get('0')).toBe('v2 ');
    await serve.end();
  });
});

describe('a change of files that are no code', () => {
  const DATA = `
import json, time
from longshore import endpoint

def load():
    print("loading")
    return json.load(open("data.json"))["value"]

@endpoint(cpu="200m", memory=256, on_start=load)
def hello(context):
    print("answers")
    return [context.on_start_value, json.load(open("data.json"))["value"], open("page.html").read()]
`;
  const FILES = { 'app.py': DATA, 'data.json': '{"value": 1}', 'page.html': 'one' };

  test('travels without a restart, and reloads nothing', async ({ platform }) => {
    const serve = new ServeCommand(platform, 'opened', FILES);
    await serve.serving();
    expect((await serve.call()).body).toBe('[1,1,"one"]');
    const told = serve.told.length;
    serve.save('data.json', '{"value": 2}');
    serve.save('page.html', 'two');
    await serve.until(
      'they are sent',
      ({ kind, paths }) => kind === 'sent' && paths?.includes('page.html') === true,
      told,
    );
    serve.save('notes.txt', 'a note');
    await serve.until('the note is sent', ({ paths }) => paths?.includes('notes.txt') === true, told);
    expect((await serve.call()).body).toBe('[1,2,"two"]');
    expect(serve.of('reloaded')).toEqual([]);
    // A program names changed files or none.
    const { containerId = '' } = await serve.serving();
    const asked = async (body: string | undefined): Promise<string> => {
      const headers = {
        authorization: `Bearer ${platform.token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      };
      const at = `${platform.url}/api/v1/gateway/containers/${containerId}/reload`;
      const answer = await fetch(at, { method: 'POST', headers, ...(body === undefined ? {} : { body }) });
      const { state, path } = (await answer.json()) as { readonly state?: string; readonly path?: string };
      return `${answer.status} ${state} ${path}`;
    };
    expect(await asked('{"paths":["notes.txt"]}')).toBe('200 unchanged undefined');
    expect(await asked('{"paths":["notes.txt","app.py"]}')).toBe('200 loaded app.py');
    expect(await asked(undefined)).toBe('200 loaded ');
    expect(await asked('{}')).toBe('200 loaded ');
    for (const wrong of ['{"paths":3}', '{"paths":[3]}', '[', JSON.stringify({ paths: Array(1001).fill('a') })])
      expect(await asked(wrong)).toMatch(/^4\d\d /);
    // Code reloads as ever.
    await serve.reloaded('app.py', DATA.replace('"answers"', '"new"'));
    expect((await serve.call()).body).toBe('[2,2,"two"]');
    await serve.until('its line', ({ message }) => message === 'new');
    // Three by a program, and at the start and the end.
    expect(serve.told.filter(({ message }) => message === 'loading')).toHaveLength(5);
    await serve.end();
  });

  test('output of the command itself in the folder is not sent', async ({ platform }) => {
    const serve = new ServeCommand(platform, 'logged', FILES, { output: 'serve.log' });
    const { containerId = '' } = await serve.serving();
    for (let round = 0; round < 3; round += 1) {
      const told = serve.told.length;
      await serve.call();
      await serve.until('the line of a call', ({ message }) => message === 'answers', told);
    }
    const told = serve.told.length;
    serve.save('notes.txt', 'a note');
    await serve.until('the note is sent', ({ paths }) => paths?.includes('notes.txt') === true, told);
    expect([...serve.of('sent'), ...serve.of('reloaded')]).toMatchObject([{ files: 1, paths: ['notes.txt'] }]);
    const at = `/api/v1/gateway/containers/${containerId}/files?path=serve.log&stat=true`;
    const headers = { authorization: `Bearer ${platform.token}` };
    expect((await fetch(`${platform.url}${at}`, { headers })).status).toBe(404);
    await serve.end();
  });

  test('is tried while the app cannot be loaded; after three times a warning names the file', async ({ platform }) => {
    const serve = new ServeCommand(platform, 'warned', { ...FILES, 'data.json': '{' });
    await serve.serving();
    for (const text of ['{ ', '{  ', '{   '])
      expect(await serve.reloaded('data.json', text)).toMatchObject({ state: 'failed' });
    await serve.until('the warning', ({ text = '' }) =>
      text.startsWith('warning: data.json had the app loaded 3 times'),
    );
    expect(await serve.reloaded('data.json', '{"value": 3}')).toMatchObject({ state: 'loaded' });
    expect((await serve.call()).body).toBe('[3,3,"one"]');
    expect(serve.told.filter(({ text = '' }) => text.startsWith('warning: '))).toHaveLength(1);
    await serve.end();
  });
});

test('a change of the definition is told once, and not after each reload', async ({ platform }) => {
  const serve = await served(platform, 'defined', APP);
  const notes = (): readonly string[] =>
    serve.of('note').flatMap(({ text = '' }) => (text.includes(' changed: ') ? [text] : []));
  const changed = APP.replace('200m', '300m');
  await serve.reloaded('app.py', changed);
  await serve.until('the note', () => notes().length === 1);
  expect(notes()[0]).toMatch(/^cpu changed: /);
  for (const word of ['v2', 'v3', 'v4']) await serve.reloaded('app.py', changed.replace('v1', word));
  await serve.reloaded('app.py', APP.replace('200m', '400m'));
  await serve.until('another note', () => notes().length > 1);
  expect(notes()).toHaveLength(2);
  expect(notes()[1]).toMatch(/^cpu changed: /);
  await serve.end();
});
