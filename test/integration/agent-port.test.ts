// Strangers at the agents' port: connections without a credential of a machine, in every way of staying silent.
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import type { ClientHttp2Session } from 'node:http2';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { describe, expect, onTestFinished } from 'vitest';
import { splitAddress } from '#shared/address.ts';
import { SERVER_NAME } from '#shared/protocol/link.ts';
import { BYTES_ALPN } from '#shared/protocol/byte-connections.ts';
import { SESSION_SETTINGS } from '#scheduler/fleet/session-settings.ts';
import { siteOf } from '#scheduler/fleet/strangers.ts';
import { dialBytes } from '#agent/upstream/byte-sockets.ts';
import { waitFor } from '../helpers/services.ts';
import type { Fleet } from './fleet-fixture.ts';
import { test as base } from './fleet-fixture.ts';

const bounds = (changes: Partial<typeof SESSION_SETTINGS.strangers>) => ({
  settings: { ...SESSION_SETTINGS, strangers: { ...SESSION_SETTINGS.strangers, ...changes } },
});

const QUICK = { handshakeWithinMs: 700, knownWithinMs: 700 };

/** Sockets of a test, counted until they close. */
function strangers({ links, caPem }: Fleet) {
  const { host, port } = splitAddress(links.address);
  const open = new Set<Socket>();
  onTestFinished(() => open.forEach((socket) => socket.destroy()));
  const counted = <T extends Socket>(socket: T): T => {
    open.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => open.delete(socket));
    socket.resume();
    return socket;
  };
  const silent = (localAddress?: string): Socket =>
    counted(connect({ host, port, ...(localAddress === undefined ? {} : { localAddress }) }));
  const tls = (protocol: string): Socket =>
    counted(connectTls({ host, port, ca: caPem, servername: SERVER_NAME, ALPNProtocols: [protocol] }));
  const http2 = async (): Promise<ClientHttp2Session> => {
    const socket = tls('h2');
    await once(socket, 'secureConnect');
    const session = connectHttp2(`https://${SERVER_NAME}`, { createConnection: () => socket });
    session.on('error', () => undefined);
    return session;
  };
  return { open, silent, tls, http2 };
}

const METHOD = '/longshore.agent.v1.AgentLink/Control';
const CALL = { ':method': 'POST', ':path': METHOD, 'content-type': 'application/grpc', te: 'trailers' };

describe('connections that show no credential', () => {
  const test = base.override(bounds({ ...QUICK, mostBytes: 100_000 }));

  test('are closed in time, however they keep silent; an agent stays', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const control = await agent.connect();
    const bytes = await dialBytes(fleet.links.address, fleet.caPem, undefined);
    const { open, silent, tls, http2 } = strangers(fleet);
    for (let at = 0; at < 40; at += 1) {
      silent();
      tls('h2');
      tls(BYTES_ALPN);
    }
    // The begin of a handshake, and nothing behind it.
    for (let at = 0; at < 40; at += 1) silent().write(Buffer.from([0x16, 0x03, 0x01]));
    const sessions = await Promise.all(Array.from({ length: 40 }, http2));
    for (const session of sessions.slice(20)) session.request(CALL).on('error', () => undefined);
    for (const session of sessions.slice(30))
      session.request({ ...CALL, authorization: 'Bearer none' }).on('error', () => undefined);
    await waitFor(() => open.size === 0, 'all strangers are gone', 5_000);
    await waitFor(() => bytes.closed, 'the connection that names no session is gone', 5_000);
    expect(control.ended).toBe(false);
    expect(agent.sessionId).not.toBe('');
  });

  test('and send much are closed at once', async ({ fleet }) => {
    const { open, http2 } = strangers(fleet);
    const session = await http2();
    const call = session.request(CALL);
    call.on('error', () => undefined);
    call.write(Buffer.alloc(60_000));
    call.write(Buffer.alloc(400_000));
    const from = performance.now();
    await waitFor(() => open.size === 0, 'it is gone', 5_000);
    expect(performance.now() - from).toBeLessThan(QUICK.knownWithinMs);
  });
});

describe('the bounds', () => {
  const test = base.override(bounds({ most: 100, mostOfAddress: 60, mostOfMachine: 3 }));

  test('cost the address that has most, and keep no agent out', async ({ fleet, agents }) => {
    const { open, silent } = strangers(fleet);
    const others = Array.from({ length: 20 }, () => silent('127.0.0.9'));
    await Promise.all(others.map((socket) => once(socket, 'connect')));
    const flood = Array.from({ length: 300 }, (_, at) => silent(at % 2 === 0 ? '127.0.0.7' : '127.0.0.8'));
    await waitFor(() => open.size <= 100, 'the bound holds', 10_000);
    expect(others.every((socket) => open.has(socket))).toBe(true);
    expect(flood.filter((socket) => open.has(socket)).length).toBeGreaterThan(0);
    const agent = await agents.joined();
    await agent.connect();
    expect(open.size).toBeLessThanOrEqual(100);
  });

  test('let so many connections of a machine be, the newest', async ({ fleet, agents }) => {
    const agent = await agents.joined();
    const { open, http2 } = strangers(fleet);
    // The connection of the join is one of them.
    for (let at = 0; at < 5; at += 1) {
      const call = (await http2()).request({
        ...CALL,
        ':path': METHOD.replace('Control', 'Logs'),
        authorization: `Bearer ${agent.credential}`,
      });
      call.on('error', () => undefined);
      await waitFor(() => fleet.links.strangers === 0, 'its credential is known');
    }
    await waitFor(() => open.size === 3, 'three are left');
  });
});

base('an address of IPv6 counts by its site, and one of IPv4 as itself', () => {
  expect(siteOf('::ffff:192.0.2.1')).toBe('192.0.2.1');
  expect(siteOf('2001:db8:1:2:3:4:5:6')).toBe('2001:db8:1:2');
  expect(siteOf('2001:db8::6')).toBe('2001:db8:0:0');
  expect(siteOf('::1')).toBe('0:0:0:0');
});
