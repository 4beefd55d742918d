// The windows of a connection that brings streamed calls, over a real HTTP/2 connection on loopback.
/* oxlint-disable no-empty-pattern */
import { once } from 'node:events';
import { connect, createServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { expect, test as base } from 'vitest';
import { widenCarryWindows } from '../../../scheduler/fleet/carry-windows.ts';

const test = base.extend('session', async ({}, { onCleanup }) => {
  widenCarryWindows();
  const server = createServer((_request, response) => void response.end('answer'));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  onCleanup(() => {
    session.destroy();
    server.close();
  });
  await once(session, 'remoteSettings');
  return session;
});

test('a streamed call widens the windows of its connection', async ({ session }) => {
  const widened = once(session, 'remoteSettings');
  session.request({ ':path': '/longshore.agent.v1.AgentLink/Carry' }).resume();
  const [settings] = (await widened) as [{ readonly initialWindowSize: number }];
  expect(settings.initialWindowSize).toBe(512 * 1024);
  await expect.poll(() => session.state.remoteWindowSize).toBe(4 * 1024 * 1024);
});

test('another call leaves them', async ({ session }) => {
  const stream = session.request({ ':path': '/longshore.agent.v1.AgentLink/Control' });
  stream.resume();
  await once(stream, 'close');
  expect(session.remoteSettings.initialWindowSize).toBe(65_535);
});
