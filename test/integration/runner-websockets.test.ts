// WebSockets in the real runner (python3 of the host, no Docker), over sockets of a fake agent.
import { describe, expect } from 'vitest';
import { appFiles, test } from '../helpers/asgi-runner.ts';
import { KIND, packFrame } from '../helpers/fake-agent.ts';

describe('a WebSocket', () => {
  const SOCKET = { type: 'websocket', scheme: 'ws', path: '/', subprotocols: ['a', 'b'] };
  const files = appFiles(`
import asyncio
async def app(scope, receive, send):
    assert scope['type'] == 'websocket'
    assert (await receive()) == {'type': 'websocket.connect'}
    path = scope['path']
    if path == '/refused':
        await send({'type': 'websocket.close'})
        return
    if path == '/answered':
        await send({'type': 'websocket.http.response.start', 'status': 401, 'headers': [(b'a', b'b')]})
        await send({'type': 'websocket.http.response.body', 'body': b'no', 'more_body': True})
        await send({'type': 'websocket.http.response.body', 'body': b'!'})
        return
    if path == '/nothing':
        return
    await send({'type': 'websocket.accept', 'subprotocol': scope['subprotocols'][1], 'headers': [(b'X', b'y')]})
    if path == '/raises':
        raise KeyError('x')
    if path == '/returns':
        return
    while True:
        message = await receive()
        if message['type'] == 'websocket.disconnect':
            print(message['code'], message['reason'])
            if path == '/on':
                await send({'type': 'websocket.close'})
                await send({'type': 'websocket.send', 'text': 'nobody'})
            return
        if message.get('text') == 'close':
            await send({'type': 'websocket.close', 'code': 4001, 'reason': 'asked to'})
            print((await receive())['code'])
            return
        await send({'type': 'websocket.send', **{key: message[key] for key in ('text', 'bytes') if key in message}})
`);

  test('is accepted, echoes text and bytes of any size, and ends with the code of its peer', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request(SOCKET);
    expect(await call.head()).toEqual({ accept: true, subprotocol: 'b', headers: [['x', 'y']] });
    call.send('message', 'hällo', { text: true });
    expect(await call.message(0)).toBe('text hällo');
    call.send('message', 'a', { text: false, more: true });
    call.send('message', 'b', { text: false, more: true });
    call.send('message', '', { text: false });
    expect(await call.message(1)).toBe('bytes ab');
    const large = 'ö'.repeat(1_500_000);
    const data = Buffer.from(large);
    for (let at = 0; at < data.length; at += 250_001) {
      call.send('message', data.subarray(at, at + 250_001), { text: true, more: at + 250_001 < data.length });
    }
    expect((await call.message(2)) === `text ${large}`).toBe(true);
    expect(Math.max(...call.of('message').map((frame) => frame.body.length))).toBeLessThanOrEqual(256 * 1024);
    call.send('message', '', { text: true });
    expect(await call.message(3)).toBe('text ');
    call.send('close', '', { code: 4002, reason: 'done' });
    const answer = await agent.answer(call.taskId);
    expect([answer.outcome, answer.body, agent.lines()]).toEqual(['ok', '{"code": 4002}', ['stdout task-1 4002 done']]);
    await call.over();
  });

  test('is closed by the application', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request(SOCKET);
    await call.connection.sendByteByByte('message', { text: true }, Buffer.from('close'));
    expect(await call.closed()).toEqual({ code: 4001, reason: 'asked to' });
    expect((await agent.answer(call.taskId)).body).toBe('{"code": 4001}');
    expect(agent.lines()).toEqual(['stdout task-1 4001']);
    await call.over();
  });

  test.for([
    ['/refused', 'ok', '{"status": 403}', 403, ''],
    ['/answered', 'ok', '{"status": 401}', 401, 'no!'],
  ] as const)('%s: is refused by an answer', async ([path, outcome, body, status, text], { start }) => {
    const agent = await start({ files });
    const call = await agent.request({ ...SOCKET, path });
    await call.ended();
    expect((await call.head())['status']).toBe(status);
    expect(call.body().toString()).toBe(text);
    const answer = await agent.answer(call.taskId);
    expect([answer.outcome, answer.body]).toEqual([outcome, body]);
  });

  test.for([
    ['/nothing', 'error', undefined],
    ['/raises', 'error', 1011],
    ['/returns', 'ok', 1000],
  ] as const)('%s: ends as %s with code %s', async ([path, outcome, code], { start }) => {
    const agent = await start({ files });
    const call = await agent.request({ ...SOCKET, path });
    expect((await agent.answer(call.taskId)).outcome).toBe(outcome);
    await call.over();
    expect(call.of('close')[0]?.header['code']).toBe(code);
  });

  test.for(['/', '/on'])('%s: a peer that goes without a word is code 1006', async (path, { start }) => {
    const agent = await start({ files });
    const call = await agent.request({ ...SOCKET, path });
    await call.head();
    call.connection.socket.destroy();
    const answer = await agent.answer(call.taskId);
    expect([answer.outcome, answer.body, agent.lines()]).toEqual(['ok', '{"code": 1006}', ['stdout task-1 1006 ']]);
  });

  test('a message above 16 MiB is closed with 1009, text that is not UTF-8 with 1007', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request(SOCKET);
    await call.head();
    const part = packFrame(KIND.message, { text: false, more: true }, Buffer.alloc(256 * 1024, 'x'));
    for (let number = 0; number < 65; number += 1) call.connection.socket.write(part);
    expect((await call.closed())['code']).toBe(1009);
    expect((await agent.answer(call.taskId)).body).toBe('{"code": 1009}');
    const other = await agent.request(SOCKET);
    other.send('message', Buffer.from([0xc3]), { text: true });
    expect((await other.closed())['code']).toBe(1007);
  });

  test('a cancel is a disconnect', async ({ start }) => {
    const agent = await start({ files });
    const call = await agent.request(SOCKET);
    await call.head();
    (await agent.slot()).send('cancel', { taskId: call.taskId, token: 'token-1', reason: 'x' });
    expect((await agent.answer(call.taskId)).outcome).toBe('cancelled');
    expect(agent.lines()).toEqual(['stdout task-1 1006 ']);
  });
});
