// Calls of containers as the scheduler takes them from agents: bounds for
// one container and one machine, and the end of calls that stand still.
import { createServer } from 'node:http';
import type { RequestListener, Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import type { GatewayResponse } from '#shared/protocol/generated/messages.ts';
import type { ContainerCall } from '#scheduler/fleet/links.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import type { ContainerCallsParts } from '#scheduler/api/http/container-calls.ts';
import { ContainerCalls } from '#scheduler/api/http/container-calls.ts';
import { issueServerCertificate, makeCertificateAuthority } from '#scheduler/workspaces/identity/certificates.ts';

const MACHINE = 'machine' as MachineId;

interface Call {
  readonly up: PassThrough;
  readonly said: GatewayResponse[];
  readonly over: Promise<void>;
}

/** @param stalledMs - as a call may stand still */
function aScheduler(stalledMs = 60_000, made: (answer: RequestListener) => Server = createServer) {
  const server = made((request, response) => {
    let bytes = 0;
    request.on('data', (data: Buffer) => (bytes += data.length));
    request.on('end', () => response.end(String(bytes)));
  });
  const row = (id: ContainerId): object => ({ row: { id, machineId: MACHINE, epoch: 1 } });
  const calls = new ContainerCalls({
    containers: { get: row, readAgain: () => Promise.resolve() } as unknown as ContainerCallsParts['containers'],
    tokenOf: () => Promise.resolve('token'),
    tokens: { containerNamedBy: () => Promise.resolve(null) },
    server: () => server,
    isOpen: () => true,
    metrics: new FleetMetrics(new Registry()),
    log: createLog({ name: 'test', level: 'silent' }),
    stalledMs,
  });
  /** A call whose body does not end until the test ends it. */
  const call = (containerId: string): Call => {
    const up = new PassThrough({ objectMode: true });
    const said: GatewayResponse[] = [];
    const write = (message: GatewayResponse): boolean => {
      said.push(message);
      return true;
    };
    up.write({
      head: { containerId, epoch: 1, method: 'POST', path: '/taskqueue/q', headers: [] },
      data: Buffer.alloc(0),
    });
    const one = new Proxy(up, {
      get: (target, name) => {
        if (name === 'write') return write;
        if (name === 'end') return () => undefined;
        if (name === 'cancelled') return false;
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
    return { up, said, over: calls.serve(MACHINE, one as unknown as ContainerCall) };
  };
  return { call };
}

const statusOf = async ({ said }: Call): Promise<number | undefined> => {
  await expect.poll(() => said.length).toBeGreaterThan(0);
  return said[0]?.head?.status;
};

test('a container has 64 calls under way, and another one of its machine has its own', async () => {
  const { call } = aScheduler();
  const held = Array.from({ length: 64 }, () => call('a'));
  expect(await statusOf(call('a'))).toBe(429);
  const other = call('b');
  other.up.end();
  expect(await statusOf(other)).toBe(200);
  held[0]?.up.end();
  await held[0]?.over;
  const next = call('a');
  next.up.end();
  expect(await statusOf(next)).toBe(200);
  for (const { up } of held) up.end();
  await Promise.all(held.map(({ over }) => over));
});

test('containers that hold on to all they get leave room for another one', async () => {
  const { call } = aScheduler();
  const held = Array.from({ length: 12 }, (_, at) => Array.from({ length: 64 }, () => call(`greedy-${at}`))).flat();
  await expect.poll(() => held.filter(({ said }) => said.length > 0).length).toBeGreaterThan(200);
  const other = call('b');
  other.up.end();
  expect(await statusOf(other)).toBe(200);
  for (const { up } of held) up.end();
  await Promise.all(held.map(({ over }) => over));
});

test('a call whose body stands still ends', async () => {
  const { call } = aScheduler(50);
  const one = call('a');
  await one.over;
  expect(one.said).toEqual([]);
});

test('a call is served by a server of HTTPS, too', async () => {
  const { chainPem, keyPem } = await issueServerCertificate(await makeCertificateAuthority(Date.now()), Date.now());
  const { call } = aScheduler(2_000, (answer) => createTlsServer({ cert: chainPem, key: keyPem }, answer));
  const one = call('a');
  one.up.end();
  expect(await statusOf(one)).toBe(200);
  await one.over;
});
