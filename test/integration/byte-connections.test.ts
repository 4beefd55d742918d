// Connections for bytes at the scheduler: who may open one, for which session, and how each ends. Both ways are tried,
// the port with TLS and the socket of this machine.
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { describe, expect } from 'vitest';
import { dialBytes, dialLocalBytes } from '#agent/upstream/byte-sockets.ts';
import { routeTo } from '#agent/proxy.ts';
import { ByteConnections } from '#agent/upstream/byte-connections.ts';
import type { Identity } from '#agent/upstream/identity.ts';
import { MOST_LINE_BYTES, bytesSocketOf, encodeLine } from '#shared/protocol/byte-connections.ts';
import { makeCertificateAuthority } from '#scheduler/workspaces/identity/certificates.ts';
import { SERVER_NAME } from '#shared/protocol/link.ts';
import { ConnectProxy } from '../helpers/connect-proxy.ts';
import { waitFor } from '../helpers/services.ts';
import type { Agent, Fleet } from './fleet-fixture.ts';
import { test } from './fleet-fixture.ts';

interface Taken {
  readonly machineId: string;
  readonly name: string;
  readonly bytes: Socket;
}

/** Everything that reaches the scheduler's streams from now on. */
function takenBy({ links }: Fleet): Taken[] {
  const taken: Taken[] = [];
  links.onStream((machineId, taskId, token, bytes) => taken.push({ machineId, name: `${taskId} ${token}`, bytes }));
  links.onOrderedStream((machineId, streamId, bytes) => taken.push({ machineId, name: streamId, bytes }));
  return taken;
}

const sessionLine = (agent: Agent) =>
  encodeLine({ sessionId: agent.sessionId, authorization: `Bearer ${agent.credential}` });

/** Resolves when the scheduler has closed the connection. */
async function closed(socket: Socket): Promise<void> {
  socket.on('error', () => undefined).resume();
  // The end may come with an error: the other side destroys its end with bytes unread.
  if (!socket.closed) await new Promise<void>((resolve) => void socket.once('close', () => resolve()));
}

const WAYS = {
  port: (fleet: Fleet) => dialBytes(fleet.links.address, fleet.caPem, undefined),
  socket: (fleet: Fleet) => dialLocalBytes(bytesSocketOf(fleet.socketPath)),
};

describe.each(['port', 'socket'] as const)('by the %s', (way) => {
  const dial = WAYS[way];

  test('bytes pass both ways behind the two lines, however they are cut', async ({ fleet, agents }) => {
    const taken = takenBy(fleet);
    const agent = await agents.joined();
    await agent.connect();
    const socket = await dial(fleet);
    const lines = Buffer.concat([sessionLine(agent), encodeLine({ taskId: 't1', token: 'a1' }), Buffer.from('first')]);
    for (let at = 0; at < lines.length; at += 7) {
      socket.write(lines.subarray(at, at + 7));
      if (at % 70 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const stream = await waitFor(() => taken[0], 'the stream');
    expect(stream).toMatchObject({ machineId: agent.machineId, name: 't1 a1' });
    const [first] = await once(stream.bytes.resume(), 'data');
    expect(String(first)).toBe('first');
    stream.bytes.write('back');
    expect(String((await once(socket, 'data'))[0])).toBe('back');
    stream.bytes.destroy();
    await closed(socket);
  });

  test('lines and first bytes in one piece arrive whole, and an ordered stream has its id', async ({
    fleet,
    agents,
  }) => {
    const taken = takenBy(fleet);
    const agent = await agents.joined();
    await agent.connect();
    const socket = await dial(fleet);
    socket.write(Buffer.concat([sessionLine(agent), encodeLine({ streamId: 's1' }), Buffer.from('{"x":1}\nrest')]));
    const { name, bytes } = await waitFor(() => taken[0], 'the stream');
    expect(name).toBe('s1');
    expect(String((await once(bytes.resume(), 'data'))[0])).toBe('{"x":1}\nrest');
    socket.destroy();
    await closed(bytes);
  });

  test('strangers get nothing', async ({ fleet, agents }) => {
    const taken = takenBy(fleet);
    const [agent, other] = [await agents.joined(), await agents.joined()];
    await agent.connect();
    await other.connect();
    const { sessionId } = agent;
    const stream = encodeLine({ taskId: 't1', token: 'a1' });
    const firsts: Record<string, Buffer> = {
      'no credential': encodeLine({ sessionId, authorization: '' }),
      'a made-up credential': encodeLine({ sessionId, authorization: 'Bearer made.up.it' }),
      'another machine’s credential': encodeLine({ sessionId, authorization: `Bearer ${other.credential}` }),
      'another machine’s session': encodeLine({
        sessionId: other.sessionId,
        authorization: `Bearer ${agent.credential}`,
      }),
      'no session': encodeLine({ sessionId: '', authorization: `Bearer ${agent.credential}` }),
      'a made-up session': encodeLine({ sessionId: 'made-up', authorization: `Bearer ${agent.credential}` }),
      'no JSON': Buffer.from('GET / HTTP/1.1\r\n'),
      'other JSON': Buffer.from('["Bearer"]\n'),
      'a line without an end': Buffer.alloc(MOST_LINE_BYTES + 1, 'a'),
      'a long line': Buffer.from(`{"sessionId":"${'a'.repeat(MOST_LINE_BYTES)}"}\n`),
    };
    for (const [what, first] of Object.entries(firsts)) {
      const socket = await dial(fleet);
      socket.write(Buffer.concat([first, stream]));
      await closed(socket);
      expect(taken, what).toEqual([]);
    }
  });

  test('a second line that names nothing ends the connection', async ({ fleet, agents }) => {
    const taken = takenBy(fleet);
    const agent = await agents.joined();
    await agent.connect();
    for (const line of ['{}\n', 'x\n', '{"taskId":"t"}\n', '{"streamId":5}\n', 'y'.repeat(MOST_LINE_BYTES + 1)]) {
      const socket = await dial(fleet);
      socket.write(sessionLine(agent));
      socket.write(line);
      await closed(socket);
    }
    expect(taken).toEqual([]);
  });
});

test('a renewed credential is good at once, and the earlier one goes on for its session', async ({ fleet, agents }) => {
  const taken = takenBy(fleet);
  const agent = await agents.joined();
  await agent.connect();
  for (const name of ['before', 'after']) {
    const socket = await WAYS.port(fleet);
    socket.write(Buffer.concat([sessionLine(agent), encodeLine({ streamId: name })]));
    const stream = await waitFor(() => taken.find((one) => one.name === name), name);
    stream.bytes.destroy();
    await closed(socket);
    agent.credential = await agent.renew();
  }
});

test('the end of a session ends what waits, and leaves what a stream has', async ({ fleet, agents }) => {
  const taken = takenBy(fleet);
  const agent = await agents.joined();
  const control = await agent.connect();
  const [waiting, used] = [await WAYS.port(fleet), await WAYS.port(fleet)];
  waiting.write(sessionLine(agent));
  used.write(Buffer.concat([sessionLine(agent), encodeLine({ streamId: 's' })]));
  const { bytes } = await waitFor(() => taken[0], 'the stream');
  control.stream.cancel();
  await closed(waiting);
  expect(bytes.destroyed).toBe(false);
  bytes.write('still there');
  expect(String((await once(used, 'data'))[0])).toBe('still there');
  const late = await WAYS.port(fleet);
  late.write(sessionLine(agent));
  await closed(late);
  used.destroy();
});

test('a session may have 64 connections that wait; the next one is closed', async ({ fleet, agents }) => {
  const agent = await agents.joined();
  await agent.connect();
  const sockets = await Promise.all(Array.from({ length: 64 }, () => WAYS.socket(fleet)));
  for (const socket of sockets) socket.write(sessionLine(agent));
  // All of them wait once the first one, which came before the rest, is known to.
  await new Promise((resolve) => setTimeout(resolve, 200));
  const more = await WAYS.socket(fleet);
  more.write(sessionLine(agent));
  await closed(more);
  expect(sockets.filter((socket) => socket.closed)).toEqual([]);
  for (const socket of sockets) socket.destroy();
});

test('a protocol that the port does not have is refused in the handshake', async ({ fleet }) => {
  const { address } = fleet.links;
  const colon = address.lastIndexOf(':');
  const socket = connectTls({
    host: address.slice(0, colon),
    port: Number(address.slice(colon + 1)),
    ca: fleet.caPem,
    servername: SERVER_NAME,
    ALPNProtocols: ['longshore-bytes/9'],
  });
  const [error] = await once(socket, 'error');
  expect(String(error)).toMatch(/no application protocol/i);
});

test('a proxy passes on what the agent and the scheduler say', async ({ fleet, agents }) => {
  const taken = takenBy(fleet);
  const agent = await agents.joined();
  await agent.connect();
  const proxy = new ConnectProxy();
  await proxy.up();
  try {
    const address = 'scheduler.test:1995';
    proxy.places.set(address, fleet.links.address);
    const socket = await dialBytes(address, fleet.caPem, routeTo(address, { HTTPS_PROXY: proxy.url }).proxy);
    socket.write(Buffer.concat([sessionLine(agent), encodeLine({ streamId: 's' }), Buffer.from('there')]));
    const { bytes } = await waitFor(() => taken[0], 'the stream');
    expect(String((await once(bytes.resume(), 'data'))[0])).toBe('there');
    bytes.end('and back');
    expect(String((await once(socket, 'data'))[0])).toBe('and back');
    await closed(socket);
  } finally {
    await proxy.down();
  }
});

test('an impostor with another CA gets no line', async ({ fleet }) => {
  const { certPem } = await makeCertificateAuthority(Date.now());
  await expect(dialBytes(fleet.links.address, certPem, undefined)).rejects.toMatchObject({
    code: 'scheduler_unreachable',
  });
});

describe('an agent dials ahead', () => {
  const identityOf = (agent: Agent): Identity => ({ credential: agent.credential }) as Identity;

  test('for streams to come, and each connection serves one', async ({ fleet, agents }) => {
    const taken = takenBy(fleet);
    const agent = await agents.joined();
    await agent.connect();
    let dialled = 0;
    const connections = new ByteConnections({
      dial: async () => {
        const socket = await WAYS.socket(fleet);
        dialled += 1;
        return socket;
      },
    });
    const open = (name: string) => connections.open(identityOf(agent), agent.sessionId, { streamId: name });
    const first = await open('0');
    await waitFor(() => dialled === 5, 'four more connections');
    const rest = await Promise.all(Array.from({ length: 12 }, (_, at) => open(String(at + 1))));
    await waitFor(() => taken.length === 13, 'all streams');
    expect(new Set(taken.map(({ name }) => name)).size).toBe(13);
    expect(new Set([first, ...rest]).size).toBe(13);
    await waitFor(() => dialled === 17, 'as many connections as were used, and four');
    for (const { bytes } of taken) bytes.destroy();
    connections.close();
  });

  test('but not for another session, and a connection that the scheduler closed is not used', async ({
    fleet,
    agents,
  }) => {
    const taken = takenBy(fleet);
    const agent = await agents.joined();
    const control = await agent.connect();
    const sockets: Socket[] = [];
    const connections = new ByteConnections({
      dial: async () => {
        const socket = await WAYS.port(fleet);
        sockets.push(socket);
        return socket;
      },
    });
    await connections.open(identityOf(agent), agent.sessionId, { streamId: 'a' });
    await waitFor(() => sockets.length === 5, 'connections ahead');
    control.stream.cancel();
    await waitFor(() => sockets.slice(1).every(({ closed: isClosed }) => isClosed), 'the end of those that wait');
    await agent.connect();
    await connections.open(identityOf(agent), agent.sessionId, { streamId: 'b' });
    await waitFor(() => taken.some(({ name }) => name === 'b'), 'the stream of the new session');
    connections.close();
    for (const { bytes } of taken) bytes.destroy();
  });
});
