// Calls of published clients over gRPC, on a real scheduler: who may call, what a refusal looks like, and bounds.
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { credentials } from '@grpc/grpc-js';
import { pino } from 'pino';
import { loadConfig } from '#shared/config.ts';
import { SchedulerSettings } from '#scheduler/config.ts';
import { startScheduler } from '#scheduler/main.ts';
import { issueServerCertificate, makeCertificateAuthority } from '#scheduler/workspaces/identity/certificates.ts';
import { GATEWAY_RPCS } from '../helpers/grpc-calls.ts';
import { GrpcClient } from '../helpers/grpc-client.ts';
import { waitFor } from '../helpers/programs.ts';
import { tempDirectory } from '../helpers/services.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Platform } from './verbs-fixture.ts';

const GATEWAY = 'gateway.GatewayService';
const OPEN = `${GATEWAY}/Authorize`;
const UNAUTHENTICATED = 16;
const INVALID_ARGUMENT = 3;

describe('calls over gRPC', () => {
  let platform: Platform;
  let client: GrpcClient;
  let deploymentId = '';
  let stubId = '';

  beforeAll(async () => {
    platform = await aPlatform({}, 'embedded');
    client = new GrpcClient(platform.grpcAddress);
    ({ id: deploymentId, stubId } = await platform.deploy('served'));
  }, 120_000);
  afterAll(async () => {
    client.close();
    await platform.stop();
  });
  const call = (name: string, message = {}, token = platform.own.token) =>
    client.call(`${GATEWAY}/${name}`, message, { token });

  test.each(GATEWAY_RPCS)('$path is refused without a token and with a revoked one', async ({ path, isStream }) => {
    for (const token of ['', 'nobody', platform.revoked]) {
      const called = isStream ? await client.stream(path, {}, { token }) : await client.call(path, {}, { token });
      if (path === OPEN && token !== '') expect(called.answer).toMatchObject({ ok: false, error_msg: 'Invalid token' });
      else if (path !== OPEN)
        expect([called.code, called.details]).toEqual([UNAUTHENTICATED, 'invalid or missing token']);
    }
  });

  test.each(GATEWAY_RPCS.filter(({ foreign }) => foreign !== undefined))(
    "$path tells nothing of another workspace's $foreign.what",
    async ({ path, foreign }) => {
      const ids = { deployment: deploymentId, stub: stubId, nobody: NOBODY };
      const message = foreign?.message(ids) ?? {};
      const { answer } = await client.call(path, message, { token: platform.other.token });
      const unknown = await client.call(path, foreign?.message({ deployment: NOBODY, stub: NOBODY, nobody: NOBODY }), {
        token: platform.other.token,
      });
      expect(answer).toMatchObject(foreign?.answer ?? {});
      expect(answer).toEqual(unknown.answer);
      // The deployment that it named is as it was.
      const listed = await call('ListDeployments', { filters: { id: { values: [deploymentId] } } });
      expect(listed.answer?.['deployments']).toMatchObject([{ id: deploymentId, active: true, version: 1 }]);
    },
  );

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
    expect(new Set(await list({}))).toEqual(new Set([second.id, deploymentId]));
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

  test('what is not built says so', async () => {
    const delta = await call('CreateObjectDelta', { hash: 'a' });
    expect(delta.answer).toMatchObject({ ok: false, base_missing: true });
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
