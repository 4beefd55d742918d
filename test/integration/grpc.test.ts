// Calls of published clients over gRPC, on a real scheduler: who may call, what a refusal looks like, and bounds.
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { once } from 'node:events';
import { buffer } from 'node:stream/consumers';
import { fromBufferPromise } from 'yauzl';
import { ZipFile } from 'yazl';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { credentials } from '@grpc/grpc-js';
import { pino } from 'pino';
import { loadConfig } from '#shared/config.ts';
import { SchedulerSettings } from '#scheduler/config.ts';
import { startScheduler } from '#scheduler/main.ts';
import { issueServerCertificate, makeCertificateAuthority } from '#scheduler/workspaces/identity/certificates.ts';
import { REFUSED_CALLS } from '#scheduler/api/grpc/services/refused.ts';
import { ALL_RPCS } from '../helpers/grpc-calls.ts';
import type { Ids } from '../helpers/grpc-calls.ts';
import { GrpcClient } from '../helpers/grpc-client.ts';
import { waitFor } from '../helpers/programs.ts';
import { tempDirectory } from '../helpers/services.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

const GATEWAY = 'gateway.GatewayService';
const OPEN = `${GATEWAY}/Authorize`;
const UNAUTHENTICATED = 16;
const INVALID_ARGUMENT = 3;
const [POOL, VOLUME, SECRET] = ['own-pool', 'own-volume', 'OWN_SECRET'];
/** Ids and names that nothing has. */
const UNKNOWN: Ids = {
  deployment: NOBODY,
  stub: NOBODY,
  task: NOBODY,
  object: NOBODY,
  token: NOBODY,
  machine: NOBODY,
  pool: 'no-pool',
  volume: 'no-volume',
  secret: 'NO_SECRET',
  nobody: NOBODY,
};

describe('calls over gRPC', () => {
  let platform: Platform;
  let client: GrpcClient;
  let deploymentId = '';
  let stubId = '';
  let ids: Ids;

  beforeAll(async () => {
    platform = await aPlatform({ LONGSHORE_SECRET_VALUES: 'full' }, 'embedded');
    client = new GrpcClient(platform.grpcAddress);
    ({ id: deploymentId, stubId } = await platform.deploy('served'));
    // A connection that shows no good token is closed after a while.
    await call('ListTasks');
    await platform.deploy('queue', { stubType: 'taskqueue/deployment' });
    const task = await platform.call('POST /taskqueue/queue', {});
    const token = await platform.gateway('POST /tokens');
    const machine = await platform.gateway('POST /machines', { poolName: POOL });
    await platform.gateway('POST /volumes', { name: VOLUME, driver: 'shared' });
    await client.call(
      'secret.SecretService/CreateSecret',
      { name: SECRET, value: 'own' },
      { token: platform.own.token },
    );
    const object = await uploaded('own', { 'a.txt': 'own' });
    ids = {
      object,
      deployment: deploymentId,
      stub: stubId,
      task: String(task.json['task_id']),
      token: String((token.json['token'] as Json)['tokenId']),
      machine: String((machine.json['machine'] as Json)['id']),
      pool: POOL,
      volume: VOLUME,
      secret: SECRET,
      nobody: NOBODY,
    };
    expect(Object.values(ids).filter((id) => id === '' || id === 'undefined')).toEqual([]);
  }, 120_000);
  afterAll(async () => {
    client.close();
    await platform.stop();
  });
  const call = (name: string, message = {}, token = platform.own.token) =>
    client.call(`${GATEWAY}/${name}`, message, { token });
  /** An uploaded object. @returns its id */
  const uploaded = async (hash: string, files: Readonly<Record<string, string>>): Promise<string> => {
    const bytes = await archiveOf(files);
    const { answer } = await call('CreateObject', { hash, size: bytes.length });
    await put(String(answer?.['presigned_url']), bytes);
    return String(answer?.['object_id']);
  };

  const answered = ALL_RPCS.filter(({ isDuplex }) => isDuplex !== true);

  test.each(answered)('$path is refused without a token and with a revoked one', async ({ path, isStream }) => {
    for (const token of ['', 'nobody', platform.revoked]) {
      const called = isStream ? await client.stream(path, {}, { token }) : await client.call(path, {}, { token });
      if (path === OPEN && token !== '') expect(called.answer).toMatchObject({ ok: false, error_msg: 'Invalid token' });
      else if (path !== OPEN)
        expect([called.code, called.details]).toEqual([UNAUTHENTICATED, 'invalid or missing token']);
    }
  });

  test.each(ALL_RPCS.filter(({ foreign }) => foreign !== undefined))(
    "$path tells nothing of another workspace's $foreign.what",
    async ({ path, foreign }) => {
      const ask = async (named: Ids) => {
        const { answer } = await client.call(path, foreign?.message(named) ?? {}, { token: platform.other.token });
        const text = JSON.stringify(answer);
        return { answer, shown: Object.values(named).reduce((shown, id) => shown.replaceAll(id, 'ID'), text) };
      };
      const theirs = await ask(ids);
      expect(theirs.answer).toMatchObject(foreign?.answer ?? {});
      expect(theirs.shown).toBe((await ask(UNKNOWN)).shown);
    },
  );

  test('what others named is as it was', async () => {
    const { token } = platform.own;
    const listed = async (path: string, field: string) =>
      (await client.call(path, {}, { token })).answer?.[field] as readonly Json[];
    const [deployment] = await listed(`${GATEWAY}/ListDeployments`, 'deployments').then((all) =>
      all.filter(({ id }) => id === deploymentId),
    );
    expect(deployment).toMatchObject({ active: true, version: 1 });
    expect(await listed(`${GATEWAY}/ListTasks`, 'tasks')).toMatchObject([{ id: ids.task, status: 'PENDING' }]);
    expect(await listed(`${GATEWAY}/ListMachines`, 'machines')).toMatchObject([{ id: ids.machine, pool_name: POOL }]);
    expect(await listed(`${GATEWAY}/ListPools`, 'pools')).toMatchObject([{ name: POOL }]);
    const tokens = await listed(`${GATEWAY}/ListTokens`, 'tokens');
    expect(tokens.find((one) => one['token_id'] === ids.token)).toMatchObject({ active: true });
    expect(await listed('volume.VolumeService/ListVolumes', 'volumes')).toMatchObject([{ name: VOLUME }]);
    const { answer } = await client.call('secret.SecretService/GetSecret', { name: SECRET }, { token });
    expect(answer?.['secret']).toMatchObject({ name: SECRET, value: 'own' });
  });

  test('a refusal is an answer that the client can read, with its own field for the text', async () => {
    expect(await call('StopDeployment', { id: NOBODY })).toMatchObject({
      code: 0,
      answer: { ok: false, err_msg: 'Deployment not found' },
    });
    expect((await call('ListWorkers', {}, platform.restricted)).answer).toMatchObject({
      ok: false,
      err_msg: 'Unauthorized Access',
    });
    expect((await call('CreateObject', {}, platform.restricted)).answer).toMatchObject({
      ok: false,
      error_msg: 'Unauthorized Access',
    });
    // An answer without `ok` has no place for it.
    expect(await call('ExportWorkspaceConfig', {}, platform.restricted)).toMatchObject({
      code: INVALID_ARGUMENT,
      details: 'Unauthorized Access',
    });
  });

  test('the filter of a list selects deployments by id, and an id that is none selects nothing', async () => {
    const second = await platform.deploy('second');
    const list = async (filters: object) => {
      const { answer } = await call('ListDeployments', { filters, limit: 10 });
      return ((answer ?? {})['deployments'] as { id: string }[]).map(({ id }) => id);
    };
    expect(await list({ id: { values: [deploymentId] } })).toEqual([deploymentId]);
    expect(await list({ id: { values: ['no-id'] } })).toEqual([]);
    expect(await list({})).toEqual(expect.arrayContaining([second.id, deploymentId]));
  });

  test('addresses are told by the name that the caller dialled', async () => {
    const [, port] = platform.grpcAddress.split(':');
    const httpPort = Number(platform.address.split(':')[1]);
    const byName = new GrpcClient(`localhost:${port}`);
    const { answer } = await byName.call(`${GATEWAY}/ExportWorkspaceConfig`, {}, { token: platform.own.token });
    byName.close();
    expect(answer).toMatchObject({
      gateway_http_host: 'localhost',
      gateway_http_port: httpPort,
      gateway_grpc_host: 'localhost',
      gateway_grpc_port: Number(port),
      gateway_grpc_tls: false,
      workspace_id: platform.own.workspaceId,
    });
    const overHttp = await platform.gateway('GET /workspace/config');
    expect(overHttp.json).toMatchObject({ gatewayGrpcHost: '127.0.0.1', gatewayGrpcPort: Number(port) });
  });

  test('a repeated request gets the answer of the first, until the client has it', async () => {
    const repeated = { token: platform.own.token, metadata: { 'x-beta9-request-id': 'again-1' } };
    const make = (how = repeated) => client.call(`${GATEWAY}/CreateToken`, {}, how);
    const [first, together] = await Promise.all([make(), make()]);
    const again = await make();
    expect(first.answer).toMatchObject({ ok: true });
    expect(together.answer).toEqual(first.answer);
    expect(again.answer).toEqual(first.answer);
    // The same id of another caller is another request.
    const others = await make({ ...repeated, token: platform.other.token });
    expect(others.answer?.['token']).not.toEqual(first.answer?.['token']);
    await client.call(
      `${GATEWAY}/ListTokens`,
      {},
      {
        token: platform.own.token,
        metadata: { 'x-beta9-request-ack': ['again-0', 'again-1'] },
      },
    );
    expect((await make()).answer?.['token']).not.toEqual(first.answer?.['token']);
    const long = { token: platform.own.token, metadata: { 'x-beta9-request-id': 'x'.repeat(129) } };
    expect(await make(long)).toMatchObject({
      code: INVALID_ARGUMENT,
      details: 'x-beta9-request-id must have at most 128 characters',
    });
  });

  test('bytes that are no message are refused by name, and a large one before it is read whole', async () => {
    const { token } = platform.own;
    const bad = await client.call(`${GATEWAY}/HeadObject`, {}, { token, bytes: Buffer.from([0xff, 0xff, 0xff]) });
    expect(bad).toMatchObject({ code: INVALID_ARGUMENT, details: 'the message is no gateway.HeadObjectRequest' });
    const large = await client.call(
      `${GATEWAY}/SignPayload`,
      { payload: '' },
      { token, bytes: Buffer.alloc(5_000_000) },
    );
    expect(large.code).toBe(8);
    const wrong = await call('StopTasks', { taskIds: ['\0'] });
    expect(wrong).toMatchObject({ code: INVALID_ARGUMENT, details: expect.stringContaining('taskIds[0]') });
  });

  test('the first token is made for a caller of this host alone, once', async () => {
    expect((await client.call(OPEN)).answer).toMatchObject({ ok: false, error_msg: 'Invalid token' });
    expect((await call('Authorize')).answer).toMatchObject({ ok: true, workspace_id: platform.own.workspaceId });
  });

  test('a second upload brings the files that changed, which are joined with the first', async () => {
    const base = await uploaded('base-hash', { 'a.txt': 'one', 'b.txt': 'two', 'c.txt': 'three' });
    const bytes = await archiveOf({ 'b.txt': 'TWO', 'd.txt': 'four' });
    const delta = (await call('CreateObjectDelta', { hash: 'next-hash', baseObjectId: base, deltaSize: bytes.length }))
      .answer;
    expect(delta).toMatchObject({ ok: true, base_missing: false });
    const commit = { objectId: String(delta?.['object_id']), baseObjectId: base, removedPaths: ['c.txt'] };
    expect((await call('CommitObjectDelta', commit)).answer).toMatchObject({
      ok: false,
      error_msg: 'the changed files have not been uploaded yet',
    });
    await put(String(delta?.['presigned_url']), bytes);
    const made = (await call('CommitObjectDelta', commit)).answer;
    expect(made).toMatchObject({ ok: true, error_msg: '' });
    const head = (await call('HeadObject', { hash: 'next-hash' })).answer;
    expect(head).toMatchObject({ exists: true, object_id: made?.['object_id'] });
    const { workspaceId } = platform.own;
    const { json } = await platform.call(
      `GET /api/v1/object/${workspaceId}/${String(made?.['object_id'])}/download-url`,
    );
    const archive = Buffer.from(await (await fetch(String(json['url']))).arrayBuffer());
    expect(await filesOf(archive)).toEqual({ 'a.txt': 'one', 'b.txt': 'TWO', 'd.txt': 'four' });
    // Bytes that are no archive make no object.
    const bad = (await call('CreateObjectDelta', { hash: 'bad-hash', baseObjectId: base, deltaSize: 3 })).answer;
    await put(String(bad?.['presigned_url']), Buffer.from('bad'));
    const refused = await call('CommitObjectDelta', { objectId: String(bad?.['object_id']), baseObjectId: base });
    expect(refused.answer).toMatchObject({ ok: false, error_msg: expect.stringContaining('cannot be joined') });
    expect((await call('HeadObject', { hash: 'bad-hash' })).answer).toMatchObject({ exists: false });
  });

  test('what is not built says so', async () => {
    expect((await call('CompleteObjectUpload')).answer).toMatchObject({ ok: false });
    expect((await call('DrainWorker', { workerId: NOBODY, restart: true })).answer?.['err_msg']).toContain('restart');
    expect((await call('ListPoolOffers')).answer).toEqual({ ok: true, err_msg: '' });
    const fromGit = await client.call(
      'image.ImageService/VerifyImageBuild',
      { gitSource: { repoUrl: 'https://git.example.org/a' } },
      { token: platform.own.token },
    );
    expect(fromGit).toMatchObject({ code: INVALID_ARGUMENT, details: expect.stringContaining('repository') });
  });

  test.each(REFUSED_CALLS)('$path is refused with a text, and a token is asked for first', async (refused) => {
    const { path, type, text, field } = refused;
    for (const token of ['', 'nobody', platform.revoked]) {
      const called = await client.raw(path, type, token);
      expect([called.code, called.details]).toEqual([UNAUTHENTICATED, 'invalid or missing token']);
    }
    const { code, bytes } = await client.raw(path, type, platform.own.token);
    expect(code).toBe(0);
    // The zero of `ok`, false, is not sent. The field of the text comes alone.
    expect(bytes[0] ?? 0).toBe(field === undefined ? 0 : (field << 3) | 2);
    expect(bytes.toString('utf8')).toContain(field === undefined ? '' : text);
  });

  test('a call is told to a stream of events', async () => {
    const events = await fetch(
      `http://${platform.address}/api/v1/events/${platform.own.workspaceId}/stream?event_types=gateway.endpoint.called`,
      { headers: { authorization: `Bearer ${platform.own.token}` } },
    );
    const reader = events.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    const seen = async (): Promise<void> => {
      while (!text.includes('/gateway.GatewayService/ListTasks')) {
        const { value = '', done = true } = (await reader?.read()) ?? {};
        text += value;
        if (done) throw new Error(`the stream ended: ${text}`);
      }
    };
    await seenAfter(() => call('ListTasks', {}), seen());
    expect(text).toContain('"status_code":200');
    expect(text).toContain('"method":"POST"');
    await reader?.cancel();
  });

  test('health is told to everybody', async () => {
    const check = (service: string) => client.call('grpc.health.v1.Health/Check', { service });
    expect((await check('')).answer).toEqual({ status: 1 });
    expect((await check(GATEWAY)).answer).toEqual({ status: 1 });
    expect((await check('nobody')).code).toBe(5);
  });

  test('a browser that opens the port, and half a message, end without harm', async () => {
    const [host, port] = platform.grpcAddress.split(':');
    const web = connect(Number(port), host);
    web.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    web.resume();
    await once(web, 'close');
    expect((await call('ListTasks')).code).toBe(0);
  });
});

async function archiveOf(files: Readonly<Record<string, string>>): Promise<Buffer> {
  const zip = new ZipFile();
  for (const [name, text] of Object.entries(files)) zip.addBuffer(Buffer.from(text), name);
  zip.end();
  return buffer(zip.outputStream);
}

async function filesOf(archive: Buffer): Promise<Readonly<Record<string, string>>> {
  const zip = await fromBufferPromise(archive);
  const files: Record<string, string> = {};
  for await (const entry of zip.eachEntry())
    files[entry.fileName] = (await buffer(await zip.openReadStreamPromise(entry))).toString('utf8');
  return files;
}

async function put(url: string, bytes: Buffer): Promise<void> {
  const answer = await fetch(url, { method: 'PUT', body: new Uint8Array(bytes) });
  expect(answer.status).toBe(200);
}

/** Repeats a call until its effect was seen. */
async function seenAfter(act: () => Promise<unknown>, seen: Promise<void>): Promise<void> {
  let isSeen = false;
  void seen.then(() => (isSeen = true));
  await waitFor(async () => {
    await act();
    return isSeen;
  }, 'the call is told');
}

describe('a scheduler that stops', () => {
  test('refuses new calls so that clients call again, and tells it to load balancers', async () => {
    const platform = await aPlatform({}, 'embedded');
    const client = new GrpcClient(platform.grpcAddress);
    expect((await client.call(`${GATEWAY}/ListTasks`, {}, { token: platform.own.token })).code).toBe(0);
    await platform.stop();
    expect((await client.call(`${GATEWAY}/ListTasks`, {}, { token: platform.own.token })).code).toBe(14);
    client.close();
  }, 60_000);

  test('no port is opened where the setting says none', async () => {
    const platform = await aPlatform({ LONGSHORE_GRPC_ADDRESS: 'none' }, 'embedded');
    expect(platform.grpcAddress).toBe('');
    const config = await platform.gateway('GET /workspace/config');
    expect(config.json).toMatchObject({ gatewayGrpcHost: '', gatewayGrpcPort: 0, gatewayGrpcTls: false });
    await platform.stop();
  }, 60_000);

  test('in clear it listens on loopback, whatever the address says, and an address that is taken ends the start', async () => {
    const platform = await aPlatform({ LONGSHORE_GRPC_ADDRESS: '0.0.0.0:0' }, 'embedded');
    expect(platform.grpcAddress).toMatch(/^127\.0\.0\.1:\d+$/);
    await expect(aPlatform({ LONGSHORE_GRPC_ADDRESS: platform.grpcAddress }, 'embedded')).rejects.toThrow(
      /another program has that port; stop it or set LONGSHORE_GRPC_ADDRESS/,
    );
    await platform.stop();
  }, 60_000);
});

test('with the certificate of HTTP the port takes TLS, and clear text of this host', { timeout: 60_000 }, async () => {
  const directory = tempDirectory('grpc-tls');
  const ca = await makeCertificateAuthority(Date.now());
  const made = await issueServerCertificate(ca, Date.now());
  const [cert, key] = [join(directory.path, 'cert.pem'), join(directory.path, 'key.pem')];
  writeFileSync(cert, made.chainPem);
  writeFileSync(key, made.keyPem, { mode: 0o600 });
  const started = await startScheduler(
    loadConfig(
      SchedulerSettings,
      {
        LONGSHORE_DATA_DIR: join(directory.path, 'data'),
        LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
        LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
        LONGSHORE_GRPC_ADDRESS: '127.0.0.1:0',
        LONGSHORE_HTTP_TLS_CERT: cert,
        LONGSHORE_HTTP_TLS_KEY: key,
        LONGSHORE_RELEASES_DIR: join(directory.path, 'releases'),
      },
      { known: [] },
    ),
    pino({ level: 'silent' }),
  );
  const port = started.grpcAddress.split(':')[1];
  const sealed = new GrpcClient(`localhost:${port}`, credentials.createSsl(Buffer.from(ca.certPem)));
  const clear = new GrpcClient(`localhost:${port}`);
  const first = await started.ensureFirstWorkspace();
  const token = first.token ?? '';
  for (const client of [sealed, clear]) {
    expect((await client.call(OPEN, {}, { token })).answer).toMatchObject({ ok: true });
    const { answer } = await client.call(`${GATEWAY}/ExportWorkspaceConfig`, {}, { token });
    expect(answer).toMatchObject({ gateway_http_tls: true, gateway_http_host: 'localhost' });
    client.close();
  }
  await started.stop();
  directory.remove();
});
