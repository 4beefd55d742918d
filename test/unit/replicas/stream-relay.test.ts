// Streamed calls on their way to another replica, which this test plays.
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { duplexPair } from 'node:stream';
import { createServer as createTlsServer } from 'node:tls';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import { StreamRelay } from '../../../scheduler/replicas/stream-relay.ts';
import { issueServerCertificate, makeCertificateAuthority } from '#scheduler/workspaces/identity/certificates.ts';
import { waitFor } from '../../helpers/programs.ts';

const SWITCHED = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: longshore-stream\r\n\r\n';

async function dialled() {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const relay = new StreamRelay({
    addressOf: () => Promise.resolve(`127.0.0.1:${(server.address() as AddressInfo).port}`),
    fingerprint: undefined,
    keys: () => [Buffer.alloc(32)],
    nowMs: () => Date.now(),
    log: pino({ level: 'silent' }),
  });
  const [own, runner] = duplexPair();
  relay.carry('replica' as InstanceId, 'task' as TaskId, own);
  const [, socket] = (await once(server, 'upgrade')) as [unknown, Duplex];
  socket.on('error', () => undefined);
  return { own, runner, socket, close: () => server.close() };
}

test('a container that is gone before the other replica answers ends the call there', async () => {
  const { own, socket, close } = await dialled();
  let isOver = false;
  socket.on('end', () => (isOver = true));
  socket.resume();
  own.destroy();
  await once(own, 'close');
  socket.write(SWITCHED);
  await waitFor(() => isOver, 'the connection of the replicas is over');
  close();
});

test('bytes that come before the other replica answers are not lost', async () => {
  const { runner, socket, close } = await dialled();
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
  runner.write('early');
  socket.write(`${SWITCHED}back`);
  const [back] = (await once(runner, 'data')) as [Buffer];
  expect(back.toString()).toBe('back');
  await waitFor(() => text === 'early', 'they came');
  runner.destroy();
  socket.destroy();
  close();
});

/** A TLS server at the address of a replica, with a certificate of its own; its caller expects `expected`. */
async function dialledWithTls(isImpostor: boolean) {
  const ca = await makeCertificateAuthority(Date.now());
  const own = await issueServerCertificate(ca, Date.now());
  const other = await issueServerCertificate(ca, Date.now());
  let received = '';
  let isOver = false;
  const server = createTlsServer({ cert: own.chainPem, key: own.keyPem }, (socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString('latin1');
      if (received.endsWith('\r\n\r\n')) socket.write(`${SWITCHED}back`);
    });
    socket.once('close', () => (isOver = true));
  });
  server.on('connection', (socket) => {
    socket.on('error', () => undefined);
    socket.once('close', () => (isOver = true));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const expected = new X509Certificate((isImpostor ? other : own).chainPem).fingerprint256;
  const relay = new StreamRelay({
    addressOf: () => Promise.resolve(`127.0.0.1:${(server.address() as AddressInfo).port}`),
    fingerprint: () => expected,
    keys: () => [Buffer.alloc(32)],
    nowMs: () => Date.now(),
    log: pino({ level: 'silent' }),
  });
  const [bytes, runner] = duplexPair();
  relay.carry('replica' as InstanceId, 'task' as TaskId, bytes);
  return { bytes, runner, received: () => received, isOver: () => isOver, close: () => server.close() };
}

test('a program with another certificate at the address of a replica gets no credential', async () => {
  // The order of the handshake decides, so it is tried several times.
  for (let tries = 0; tries < 5; tries += 1) {
    const { bytes, received, isOver, close } = await dialledWithTls(true);
    await waitFor(() => isOver() && bytes.destroyed, 'the connection and the call are over');
    expect(received()).toBe('');
    close();
  }
});

test('a replica with the shared certificate gets the credential, and the bytes', async () => {
  const { runner, received, close } = await dialledWithTls(false);
  const [back] = (await once(runner, 'data')) as [Buffer];
  expect(back.toString()).toBe('back');
  expect(received()).toMatch(/^GET \/~streams\/task HTTP\/1\.1\r\n[^]*authorization: \d+\./iu);
  runner.destroy();
  close();
});
