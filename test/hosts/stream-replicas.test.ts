// Streamed calls at several scheduler processes: the caller at a replica, the machine linked to another.
import { createHash, randomBytes } from 'node:crypto';
import { expect } from 'vitest';
import { WebSocket } from 'ws';
import { RawConnection } from '../helpers/raw-http.ts';
import type { Replica, SimulatedDeployment } from '../helpers/replicas.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { test as base, waitFor } from '../helpers/services.ts';

interface Two {
  readonly set: ReplicaSet;
  /** No machine is linked to it. */
  readonly far: Replica;
  /** The replica that the machine is linked to. */
  readonly near: Replica;
  readonly web: SimulatedDeployment;
}

const test = base.extend('two', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<Two> => {
  const set = new ReplicaSet(postgres, redis);
  onCleanup(() => set.stop());
  const far = await set.add();
  const near = await set.add();
  await set.agent({ addresses: () => [near.agentAddress], volumeDrivers: ['shared'] });
  const web = await set.deploy(far, 'web', { stubType: 'asgi/deployment', concurrentRequests: 50 });
  return { set, far, near, web };
});

const authorization = ({ set }: Two) => ({ authorization: `Bearer ${set.token}` });

test('bytes pass both ways through the replica that has the machine', async ({ two }) => {
  const body = randomBytes(8 * 1024 * 1024);
  for (const at of [two.far, two.near]) {
    const answer = await fetch(`${at.url}${two.web.path}/echo?a=1`, {
      method: 'PUT',
      body,
      headers: authorization(two),
    });
    const back = Buffer.from(await answer.arrayBuffer());
    expect(createHash('sha256').update(back).digest('hex')).toBe(createHash('sha256').update(body).digest('hex'));
    const seen = JSON.parse(Buffer.from(answer.headers.get('x-request') ?? '', 'base64').toString()) as object;
    expect(seen).toMatchObject({ method: 'PUT', path: `${two.web.path}/echo`, query: 'a=1' });
    const taskId = answer.headers.get('x-task-id');
    await waitFor(async () => {
      const task = await two.set.call(two.far, `/api/v1/task/${two.set.workspaceId}/${taskId}`);
      return task.text.includes('"COMPLETE"');
    }, 'its task is COMPLETE');
  }
});

test('a WebSocket passes likewise', async ({ two }) => {
  const socket = new WebSocket(`${two.far.url.replace('http', 'ws')}${two.web.path}/`, { headers: authorization(two) });
  const messages: string[] = [];
  socket.on('message', (data: Buffer) => messages.push(data.toString()));
  const closed = new Promise<number>((resolve) => socket.once('close', resolve));
  await new Promise((resolve) => socket.once('open', resolve));
  for (const text of ['a', 'b', 'c'.repeat(300_000)]) socket.send(text);
  await waitFor(() => messages.length === 3, 'three came back');
  expect(messages.map((text) => text.length)).toEqual([1, 1, 300_000]);
  socket.close(1000);
  expect(await closed).toBe(1000);
});

test('a caller who leaves ends the call at the other replica', async ({ two }) => {
  const connection = new RawConnection(two.far.url.replace('http://', ''));
  await connection.opened;
  connection.send(
    `POST ${two.web.path}/ HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer ${two.set.token}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n`,
  );
  await connection.until((bytes) => bytes.includes('\r\nx\r\n'));
  const taskId = /x-task-id: ([0-9a-f-]+)/i.exec(connection.received.toString())?.[1] ?? '';
  connection.close();
  await waitFor(async () => {
    const task = await two.set.call(two.near, `/api/v1/task/${two.set.workspaceId}/${taskId}`);
    return task.text.includes('"CANCELLED"');
  }, 'its task is CANCELLED');
});

test('the address for replicas is no one else’s', async ({ two }) => {
  const id = '00000000-0000-4000-8000-000000000000';
  const until = Date.now() + 30_000;
  for (const credential of ['', `Bearer ${two.set.token}`, `${until}.AAAA`, `${until}.${'A'.repeat(43)}`]) {
    const connection = new RawConnection(two.near.url.replace('http://', ''));
    await connection.opened;
    connection.send(
      `GET /~streams/${id} HTTP/1.1\r\nHost: w\r\nConnection: Upgrade\r\nUpgrade: longshore-stream\r\nAuthorization: ${credential}\r\n\r\n`,
    );
    expect((await connection.answer()).status).toBe(404);
    connection.close();
  }
  expect(await two.set.call(two.near, `/~streams/${id}`)).toMatchObject({ status: 404 });
});

test('the replica with the machine stops: a call under way at another one may end', async ({ two }) => {
  const connection = new RawConnection(two.far.url.replace('http://', ''));
  await connection.opened;
  connection.send(
    `POST ${two.web.path}/ HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer ${two.set.token}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n`,
  );
  await connection.until((bytes) => bytes.includes('\r\nx\r\n'));
  const stopped = two.near.daemon.stop();
  await waitFor(
    () =>
      fetch(two.near.url).then(
        ({ status }) => status === 503,
        () => true,
      ),
    'it takes nothing new',
  );
  connection.send('1\r\ny\r\n0\r\n\r\n');
  const answer = await connection.answer();
  expect(answer).toMatchObject({ status: 200, isWhole: true });
  await stopped;
  await two.set.start(two.near);
  await waitFor(
    async () => (await fetch(`${two.near.url}${two.web.path}/`, { headers: authorization(two) })).status === 200,
    'calls are served again',
    60_000,
  );
});

test('the replica with the machine dies in the middle: the answer is cut, never clean', async ({ two }) => {
  const connection = new RawConnection(two.far.url.replace('http://', ''));
  await connection.opened;
  connection.send(
    `POST ${two.web.path}/ HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer ${two.set.token}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n`,
  );
  await connection.until((bytes) => bytes.includes('\r\nx\r\n'));
  await two.near.daemon.kill();
  const answer = await connection.answer();
  expect(answer.isWhole).toBe(false);
  await two.set.start(two.near);
  await waitFor(
    async () => (await fetch(`${two.near.url}${two.web.path}/`, { headers: authorization(two) })).status === 200,
    'calls are served again',
    60_000,
  );
});

test('the file of a volume passes through the replica that has its machine', async ({ two }) => {
  const { set, far, near } = two;
  const made = await set.call(far, '/api/v1/gateway/volumes', { body: { name: 'files', driver: 'shared' } });
  expect(made.status, made.text).toBe(200);
  for (const at of [far, near]) {
    const signed = await set.call(at, `/api/v1/volume/${set.workspaceId}/files/file-url?path=a%2Fb&method=PUT`);
    expect(signed.status, signed.text).toBe(200);
    const { url } = JSON.parse(signed.text) as { url: string };
    const body = randomBytes(4 * 1024 * 1024);
    const answer = await fetch(url, { method: 'PUT', body });
    expect(Buffer.from(await answer.arrayBuffer()).equals(body)).toBe(true);
    const seen = JSON.parse(Buffer.from(answer.headers.get('x-request') ?? '', 'base64').toString()) as object;
    expect(seen).toMatchObject({ type: 'file', purpose: 'put', method: 'PUT', path: 'a/b' });
  }
});
