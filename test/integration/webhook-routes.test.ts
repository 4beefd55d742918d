// Webhooks as people use them, by HTTP and by the command line, with two schedulers and simulated agents: events of
// real tasks, lists and refusals, and a leader that is killed while it sends.
/* oxlint-disable no-empty-pattern */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Webhook } from 'standardwebhooks';
import { expect } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { ROOT, jsonOf, plainEnv } from '../helpers/platform.ts';
import { Receiver } from '../helpers/receiver.ts';
import type { Received } from '../helpers/receiver.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import type { Replica } from '../helpers/replicas.ts';
import { test as base, waitFor } from '../helpers/services.ts';
import { echo } from '../helpers/simulated-agent.ts';

type Json = Readonly<Record<string, unknown>>;
interface Listed {
  readonly data: readonly Json[];
  readonly next: string;
}
interface Event {
  readonly id: string;
  readonly type: string;
  readonly data: { readonly id: string; readonly status: string; readonly attempt: number };
}

interface World {
  readonly set: ReplicaSet;
  readonly receiver: Receiver;
  /** A replica that runs. */
  readonly at: () => Replica;
  /** Calls a route of the own workspace's webhooks. */
  readonly call: (
    method: string,
    path: string,
    body?: unknown,
    token?: string,
  ) => Promise<{ readonly status: number; readonly json: Json }>;
  readonly cli: (...args: readonly string[]) => Promise<{
    readonly code: number | null;
    readonly stdout: string;
    readonly stderr: string;
  }>;
}

const test = base.extend('world', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<World> => {
  const receiver = await new Receiver().start();
  const set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
  onCleanup(async () => {
    await set.stop();
    await receiver.stop();
  });
  await set.add();
  await set.add();
  await set.agent({ handle: echo });
  const at = (): Replica => {
    const [replica] = set.running;
    if (replica === undefined) throw new Error('no replica runs');
    return replica;
  };
  return {
    set,
    receiver,
    at,
    call: async (method, path, body, token) => {
      const answer = await set.call(at(), `/api/v1/webhook/${set.workspaceId}${path}`, {
        method,
        ...(body === undefined ? {} : { body }),
        ...(token === undefined ? {} : { token }),
      });
      return { status: answer.status, json: answer.text === '' ? {} : jsonOf<Json>(answer) };
    },
    cli: (...args) =>
      runCommand(args, {
        LONGSHORE_URL: at().url,
        LONGSHORE_TOKEN: set.token,
        LONGSHORE_CONTEXT_FILE: join(set.directory, 'contexts.json'),
      }),
  };
});

test.afterEach(async ({ world: { call } }) => {
  const { data } = (await call('GET', '?limit=1000')).json as unknown as Listed;
  for (const row of data) expect((await call('DELETE', `/${String(row['id'])}`)).status).toBe(200);
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

async function isOpen(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  const isThere = await Promise.race([
    once(socket, 'connect').then(() => true),
    once(socket, 'close').then(() => false),
  ]).catch(() => false);
  socket.destroy();
  return isThere;
}

const eventOf = ({ body }: Received): Event => JSON.parse(body) as Event;

async function put({ set, at }: World, path: string, body: object): Promise<string> {
  const answer = await set.call(at(), path, { body });
  expect(answer.status, answer.text).toBe(200);
  return jsonOf<{ task_id: string }>(answer).task_id;
}

test('the administrator opens and closes networks at run time, on every replica, but no port of ours', async ({
  world,
}) => {
  const { set, call, cli } = world;
  const [one, other] = set.running;
  if (one === undefined || other === undefined) throw new Error('two replicas run');
  const hook = (url: string) => call('POST', '', { url, event_types: ['task.*'] });
  const own = await hook(`http://127.0.0.1:${new URL(one.url).port}/api/v1/x`);
  expect([own.status, own.json['message']]).toEqual([
    400,
    expect.stringMatching(/^url must not name port \d+ of 127\.0\.0\.1: Longshore's own/) as string,
  ]);
  expect((await hook('http://127.0.0.1:6379/')).status).toBe(400);
  expect((await hook('http://[::ffff:127.0.0.1]:6379/')).status).toBe(400);
  expect(await cli('settings', 'set', 'webhook_allow', '10.1.0.0/16')).toMatchObject({ code: 0 });
  const shown = await set.call(other, '/api/v1/setting');
  const [allowed] = jsonOf<{ data: readonly Json[] }>(shown).data.filter(({ name }) => name === 'webhook_allow');
  expect(allowed).toMatchObject({
    value: '10.1.0.0/16',
    source: 'database',
    variable: 'LONGSHORE_WEBHOOK_ALLOW',
  });
  for (const replica of [one, other]) {
    const path = `/api/v1/webhook/${set.workspaceId}`;
    const here = { method: 'POST', body: { url: 'http://127.0.0.1:9/', event_types: ['task.*'] } };
    expect((await set.call(replica, path, here)).text).toContain('settings set webhook_allow');
    const there = { method: 'POST', body: { url: 'https://10.1.2.3/', event_types: ['task.*'] } };
    expect((await set.call(replica, path, there)).status).toBe(201);
  }
  const wrong = await cli('settings', 'set', 'webhook_allow', '10/8');
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('value must be networks such as') as string]);
  expect((await set.call(one, '/api/v1/setting/other', { method: 'DELETE' })).status).toBe(404);
  expect((await cli('settings', 'reset', 'webhook_allow')).stdout).toContain(
    '127.0.0.1 again, as LONGSHORE_WEBHOOK_ALLOW',
  );
  expect((await hook('http://127.0.0.1:9/')).status).toBe(201);
  expect((await cli('settings', 'list')).stdout).toMatch(/webhook_allow +127\.0\.0\.1 +LONGSHORE_WEBHOOK_ALLOW/);
  expect((await cli('audit')).stdout.match(/setting\.updated/g)).toHaveLength(2);
});

test('each change of a task comes once, in order, signed; the record shows the last delivery', async ({ world }) => {
  const { set, receiver, at, call } = world;
  const made = await call('POST', '', { url: receiver.url('/life'), event_types: ['task.*'], description: 'mine' });
  expect(made.status).toBe(201);
  const secret = String(made.json['secret']);
  const app = await set.deploy(at(), 'life', { stubType: 'taskqueue/deployment' });
  const taskId = await put(world, app.path, { n: 1 });
  await waitFor(
    () => receiver.at('/life').some((request) => eventOf(request).data.status === 'COMPLETE'),
    'its end is told',
  );
  const events = receiver.at('/life').map(eventOf);
  expect(events[0]).toMatchObject({ type: 'task.created', taskid: taskId, stubid: app.stubId });
  expect(events.slice(1).map(({ type }) => type)).toEqual(events.slice(1).map(() => 'task.updated'));
  expect(events.map(({ data }) => data.id)).toEqual(events.map(() => taskId));
  expect(events.at(-1)?.data.status).toBe('COMPLETE');
  expect(new Set(events.map(({ id }) => id)).size).toBe(events.length);
  for (const { body, headers } of receiver.at('/life'))
    expect(new Webhook(secret).verify(body, headers as Record<string, string>)).toEqual(JSON.parse(body));
  const shown = await waitFor(async () => {
    const { json } = await call('GET', `/${String(made.json['id'])}`);
    return (json['last_delivery'] as { event_id: string } | null)?.event_id === events.at(-1)?.id ? json : undefined;
  }, 'the record shows it');
  expect(shown).toMatchObject({
    url: receiver.url('/life'),
    description: 'mine',
    secret_hint: secret.slice(-4),
    last_delivery: { status_code: 200, error: null },
  });
  expect(shown).not.toHaveProperty('secret');
});

test('a change at a scheduler that does not lead is told, too; the audit trail is not, whatever the filter', async ({
  world,
}) => {
  const { set, receiver, call } = world;
  await call('POST', '', { url: receiver.url('/all'), event_types: ['*'] });
  const leader = await set.leader();
  const other = set.running.find((replica) => replica !== leader);
  if (other === undefined) throw new Error('there is no other');
  const { deploymentId } = await set.deploy(other, 'changed');
  const at = `/api/v1/deployment/${set.workspaceId}`;
  for (const verb of ['stop', 'start'])
    expect((await set.call(other, `${at}/${verb}/${deploymentId}`, { method: 'POST' })).status).toBe(200);
  const kinds = (): readonly string[] => receiver.at('/all').map((request) => eventOf(request).type);
  await waitFor(() => kinds().includes('deployment.started'), `it is told: ${kinds().join()}`);
  expect(kinds()).toContain('deployment.stopped');
  expect(kinds().indexOf('deployment.stopped')).toBeLessThan(kinds().indexOf('deployment.started'));
  expect(kinds().filter((kind) => kind.startsWith('audit.'))).toEqual([]);
});

test('lists have pages, also when they are empty; refusals name the field; the bound is twenty', async ({ world }) => {
  const { set, receiver, at, call } = world;
  expect((await call('GET', '')).json).toEqual({ data: [], next: '' });
  const ids: unknown[] = [];
  for (let n = 0; n < 20; n += 1) {
    const { status, json } = await call('POST', '', { url: receiver.url('/many'), event_types: ['stub.deploy'] });
    expect(status).toBe(201);
    ids.push(json['id']);
  }
  const refused = await call('POST', '', { url: receiver.url('/many') });
  expect(refused).toMatchObject({
    status: 403,
    json: { code: 'too_many_webhooks', message: 'this workspace may have 20 webhooks, and has them' },
  });
  const counts = jsonOf<{ counts: { webhooks: Json } }>(
    await set.call(at(), `/api/v1/workspace/${set.workspaceId}/limits`),
  ).counts;
  expect(counts.webhooks).toEqual({ used: 20, limit: 20 });
  const seen: unknown[] = [];
  let cursor = '';
  do {
    const { json } = await call('GET', `?limit=7&cursor=${cursor}`);
    const { data, next } = json as unknown as Listed;
    expect(data.length).toBeLessThanOrEqual(7);
    for (const row of data) expect(row).not.toHaveProperty('secret');
    seen.push(...data.map((row) => row['id']));
    cursor = next;
  } while (cursor !== '');
  expect(new Set(seen)).toEqual(new Set(ids));
  expect(seen).toHaveLength(20);
  const [id] = ids;
  for (const [body, status, text] of [
    [{ url: 'https://10.0.0.1/' }, 400, 'url must not name the address 10.0.0.1'],
    [{ url: 'http://example.com/' }, 400, 'url must be an https URL'],
    [{ event_types: ['task.lost'] }, 400, 'event_types: there is no kind "task.lost"'],
    [{ event_types: ['audit.*'] }, 400, 'event_types: there is no kind "audit.*"'],
    [{ event_types: 'task.updated' }, 422, 'event_types'],
    [{ active: 'perhaps' }, 422, 'active'],
    [{ description: 'x'.repeat(501) }, 400, 'description must have at most 500 characters'],
  ] as const) {
    const answer = await call('PUT', `/${String(id)}`, body);
    expect([answer.status, answer.json['message']], JSON.stringify(body)).toEqual([
      status,
      expect.stringContaining(text),
    ]);
  }
  expect(await call('POST', '', {})).toMatchObject({
    status: 400,
    json: { code: 'invalid_webhook', message: 'url must be an http or https URL' },
  });
  expect((await call('GET', '?limit=x')).status).toBe(400);
  const deliveries = `/${String(id)}/deliveries`;
  expect((await call('GET', deliveries)).json).toEqual({ data: [], next: '' });
  // Ids count in any case.
  expect((await call('GET', `/${String(id).toUpperCase()}/deliveries`)).status).toBe(200);
  for (let n = 0; n < 3; n += 1) await call('POST', `/${String(id)}/test`);
  const first = (await call('GET', `${deliveries}?limit=2`)).json as unknown as Listed;
  const rest = (await call('GET', `${deliveries}?limit=2&cursor=${first.next}`)).json as unknown as Listed;
  expect([first.data.length, rest.data.length, rest.next]).toEqual([2, 1, '']);
  expect((await call('GET', `${deliveries}?state=failed`)).json).toEqual({ data: [], next: '' });
  expect((await call('GET', `${deliveries}?state=delivered`)).json).toMatchObject({ data: { length: 3 } });
});

test('a restricted token looks and changes nothing; another workspace sees nothing', async ({ world }) => {
  const { set, receiver, at, call } = world;
  const { json: made } = await call('POST', '', { url: receiver.url('/own') });
  const id = String(made['id']);
  const { json: tested } = await call('POST', `/${id}/test`);
  const { token } = await set.gateway<{ token: { key: string } }>(at(), '/tokens?tokenType=workspace_restricted', {});
  const other = jsonOf<{ readonly token: string; readonly external_id: string }>(
    await set.call(at(), '/api/v1/workspace', { body: { name: 'other' } }),
  );
  const writes = [
    ['POST', '', { url: receiver.url('/own') }],
    ['PUT', `/${id}`, { active: false }],
    ['DELETE', `/${id}`],
    ['POST', `/${id}/rotate`],
    ['POST', `/${id}/test`],
    ['POST', `/${id}/deliveries/${String(tested['id'])}/redeliver`],
  ] as const;
  const reads = [
    ['GET', ''],
    ['GET', `/${id}`],
    ['GET', `/${id}/deliveries`],
  ] as const;
  for (const [method, path, body] of writes) {
    expect((await call(method, path, body, token.key)).status, `${method} ${path}`).toBe(401);
    expect((await call(method, path, body, '')).status, `${method} ${path}`).toBe(401);
  }
  for (const [method, path] of reads) {
    expect((await call(method, path, undefined, token.key)).status, path).toBe(200);
    expect((await call(method, path, undefined, '')).status, path).toBe(401);
  }
  // In its own workspace the other one finds nothing of that id.
  for (const [method, path, body] of [...writes.slice(1), ...reads.slice(1)] as const) {
    const answer = await set.call(at(), `/api/v1/webhook/${other.external_id}${path}`, {
      method,
      token: other.token,
      ...(body === undefined ? {} : { body }),
    });
    expect(answer.status, `${method} ${path}`).toBe(404);
    expect((await call(method, path, body, other.token)).status, `${method} ${path}`).toBe(401);
  }
  expect(receiver.at('/own')).toHaveLength(1);
  expect((await call('GET', `/${id}`)).json).toMatchObject({ active: true, secret_hint: made['secret_hint'] });
});

test('the command line makes, shows, changes, tests and repeats', async ({ world }) => {
  const { receiver, call, cli } = world;
  const created = await cli('webhook', 'create', receiver.url('/cli'), '--events', 'stub.deploy,task.*', '--retry');
  expect(created.code, created.stderr).toBe(0);
  expect(created.stdout).toMatch(/^whsec_[A-Za-z0-9+/]{43}=\n$/);
  const id = /^webhook ([0-9a-f-]{36}) \(stub\.deploy,task\.\*\); its secret is shown this once: keep it\n$/.exec(
    created.stderr,
  )?.[1];
  if (id === undefined) throw new Error(created.stderr);
  expect(await cli('webhook', 'list')).toEqual({
    code: 0,
    stderr: '',
    stdout: expect.stringMatching(
      /^ID +URL +EVENTS +ACTIVE +RETRY +LAST DELIVERY +SKIPPED\n\S+ +http:\S+\/cli +stub\.deploy,task\.\* +yes +yes +- +0\n$/,
    ) as string,
  });
  const listed = JSON.parse((await cli('webhook', 'list', '--json')).stdout) as readonly Json[];
  expect(listed).toMatchObject([{ id, retry: true, event_types: ['stub.deploy', 'task.*'] }]);
  expect(await cli('webhook', 'test', id)).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^the test was delivered: answered 200 in \d+ ms\n$/) as string,
  });
  receiver.replies.set('/cli', [500, 200]);
  expect(await cli('webhook', 'test', id)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('the test was not delivered: answered 500') as string,
  });
  const table = (await cli('webhook', 'deliveries', id, '--state', 'failed')).stdout;
  expect(table).toMatch(
    /^ID +EVENT +STATE +TRIES +OUTCOME +FIRST TRY +NEXT TRY\n\S+ +webhook\.test +failed +1 +answered 500 +\d+s ago +-\n$/,
  );
  const delivery = /^([0-9a-f-]{36}) /m.exec(table)?.[1] ?? '';
  expect((await cli('webhook', 'redeliver', id, delivery)).stdout).toMatch(
    /^webhook\.test was delivered: answered 200 in \d+ ms\n$/,
  );
  const all = JSON.parse((await cli('webhook', 'deliveries', id, '--json')).stdout) as readonly Json[];
  expect(all.map((row) => [row['state'], row['attempts']])).toEqual([
    ['delivered', 2],
    ['delivered', 1],
  ]);
  const rotated = await cli('webhook', 'rotate', id);
  expect(rotated.stdout).toMatch(/^whsec_/);
  expect(rotated.stdout).not.toBe(created.stdout);
  const updated = await cli('webhook', 'update', id, '--active', 'no', '--events', '');
  expect(updated.stdout).toBe(`webhook ${id} is inactive: all to ${receiver.url('/cli')}\n`);
  expect((await call('GET', `/${id}`)).json).toMatchObject({ active: false, event_types: [], retry: true });
  const moved = await cli('webhook', 'update', id, '--to', receiver.url('/moved'));
  expect(moved.stdout).toContain(` to ${receiver.url('/moved')}\n`);
  expect(await cli('webhook', 'update', id, '--events', 'nothing.*')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('there is no kind "nothing.*"') as string,
  });
  expect((await cli('webhook', 'delete', id)).stdout).toBe(`deleted webhook ${id}\n`);
  expect(await cli('webhook', 'test', id)).toMatchObject({
    code: 4,
    stderr: expect.stringContaining(`there is no webhook ${id} in this workspace`) as string,
  });
  expect((await cli('webhook', 'create', '--help')).stdout).toContain(
    'longshore webhook create https://example.com/hooks --events task.updated > secret.txt',
  );
});

test.for(['js', 'python'] as const)(
  'the receiver in %s of the documents takes what is genuine alone',
  async (language, { world, onTestFinished }) => {
    const { set, call } = world;
    const text = readFileSync(join(ROOT, 'docs', 'webhooks.md'), 'utf8');
    const code = new RegExp(`\`\`\`${language}\\n([^\`]+)\`\`\``).exec(text)?.[1] ?? '';
    const file = join(set.directory, language === 'js' ? 'receiver.mjs' : 'receiver.py');
    writeFileSync(file, code);
    if (language === 'js') symlinkSync(join(ROOT, 'node_modules'), join(set.directory, 'node_modules'));
    const port = await freePort();
    const { json } = await call('POST', '', { url: `http://127.0.0.1:${port}/` });
    const start = async (secret: string): Promise<() => Promise<void>> => {
      const child = spawn(language === 'js' ? process.execPath : 'python3', [file], {
        env: { ...plainEnv(), WEBHOOK_SECRET: secret, PORT: String(port) },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      let said = '';
      for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (said += part.toString()));
      const ended = once(child, 'close');
      const stop = async (): Promise<void> => {
        child.kill('SIGKILL');
        await ended;
      };
      onTestFinished(stop);
      await waitFor(() => isOpen(port), `it listens: ${said}`, 20_000);
      return stop;
    };
    const tested = async () => (await call('POST', `/${String(json['id'])}/test`)).json;
    const stop = await start(String(json['secret']));
    expect(await tested()).toMatchObject({ state: 'delivered', status_code: 204 });
    await stop();
    await start(`whsec_${Buffer.alloc(32).toString('base64')}`);
    expect(await tested()).toMatchObject({ state: 'failed', status_code: 401 });
  },
);

test('a leader that is killed while it sends loses no event, and each task keeps its order', async ({ world }) => {
  const { set, receiver, at, call } = world;
  await call('POST', '', { url: receiver.url('/killed'), event_types: ['task.*'] });
  let open = (): void => undefined;
  const held = new Promise<void>((resolve) => (open = resolve));
  receiver.replies.set('/killed', [...Array.from({ length: 12 }, () => 200), { status: 200, once: held }, 200]);
  const app = await set.deploy(at(), 'killed', { stubType: 'taskqueue/deployment' });
  const tasks = await Promise.all(Array.from({ length: 30 }, (_, n) => put(world, app.path, { n })));
  await receiver.until('/killed', 13);
  const leader = await set.leader();
  if (leader === undefined) throw new Error('nobody leads');
  await leader.daemon.kill();
  open();
  const endOf = (taskId: string): Event[] =>
    receiver
      .at('/killed')
      .map(eventOf)
      .filter(({ data }) => data.id === taskId);
  await waitFor(
    () => tasks.every((taskId) => endOf(taskId).some(({ data }) => data.status === 'COMPLETE')),
    'every end is told',
    60_000,
  );
  for (const taskId of tasks) {
    const firsts = [...new Map(endOf(taskId).map((event) => [event.id, event])).values()];
    expect(firsts[0]?.type, taskId).toBe('task.created');
    // An attempt that the killed scheduler had sent may go back to its queue: the next attempt runs then.
    const places = firsts.map(({ data: { status, attempt } }) => {
      const place = ['RUNNING', 'PENDING', 'COMPLETE'].indexOf(status);
      return attempt === 0 ? place - 1 : 10 * attempt + place;
    });
    expect(places[0], taskId).toBe(0);
    expect(places, taskId).toEqual(places.toSorted((a, b) => a - b));
  }
}, 120_000);
