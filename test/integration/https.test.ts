// HTTPS of a real scheduler: the clients it serves, its certificates,
// and no trust in loopback where a proxy may stand in front.
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect } from 'node:tls';
import type { ConnectionOptions, TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { pino } from 'pino';
import { Agent, request } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadConfig } from '#shared/config.ts';
import { openCertificate } from '#scheduler/compose/surfaces.ts';
import { SchedulerSettings } from '#scheduler/config.ts';
import { issueServerCertificate, makeCertificateAuthority } from '#scheduler/workspaces/identity/certificates.ts';
import type { CertificateAuthority } from '#scheduler/workspaces/identity/certificates.ts';
import { startScheduler } from '#scheduler/main.ts';
import type { Scheduler } from '#scheduler/main.ts';
import { aRedis, tempDirectory } from '../helpers/services.ts';

const MAIN = join(import.meta.dirname, '../../cli/main.ts');
const directory = tempDirectory('https');
const cert = join(directory.path, 'cert.pem');
const key = join(directory.path, 'key.pem');
const stopping: (() => Promise<unknown>)[] = [];
const lines: string[] = [];
let ca: CertificateAuthority;
let scheduler: Scheduler;
let agent: Agent;

async function writeCertificate(of = ca): Promise<void> {
  const made = await issueServerCertificate(of, Date.now());
  writeFileSync(cert, made.chainPem);
  writeFileSync(key, made.keyPem, { mode: 0o600 });
}

const settingsOf = (said: Readonly<Record<string, string>>): SchedulerSettings =>
  loadConfig(
    SchedulerSettings,
    {
      LONGSHORE_DATA_DIR: join(directory.path, 'data'),
      LONGSHORE_HTTP_ADDRESS: '0.0.0.0:0',
      LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0',
      ...said,
    },
    { known: [] },
  );

beforeAll(async () => {
  ca = await makeCertificateAuthority(Date.now());
  agent = new Agent({ connect: { ca: ca.certPem } });
  await writeCertificate();
  const redis = await aRedis();
  const settings = settingsOf({
    LONGSHORE_HTTP_TLS_CERT: cert,
    LONGSHORE_HTTP_TLS_KEY: key,
    LONGSHORE_TRUSTED_PROXIES: '127.0.0.1',
    REDIS_URL: redis.url,
  });
  scheduler = await startScheduler(settings, pino({ level: 'info' }, { write: (line: string) => lines.push(line) }));
  stopping.push(
    () => agent.destroy(),
    () => scheduler.stop(),
    () => redis.stop(),
  );
});
afterAll(async () => {
  for (const stop of stopping) await stop();
  directory.remove();
});

const port = (): number => Number(scheduler.httpAddress.split(':').at(-1));

async function get(path: string, dispatcher = agent): Promise<{ readonly status: number; readonly json: unknown }> {
  const answer = await request(`https://localhost:${port()}${path}`, { dispatcher });
  const text = await answer.body.text();
  return { status: answer.statusCode, json: text.startsWith('{') ? (JSON.parse(text) as unknown) : text };
}

/** The fingerprint of the certificate that a new connection gets. */
function served(options: ConnectionOptions = {}): Promise<{ readonly fingerprint: string; readonly protocol: string }> {
  return new Promise((resolve, reject) => {
    const socket: TLSSocket = connect({ port: port(), host: '127.0.0.1', ca: ca.certPem, ...options }, () => {
      resolve({ fingerprint: socket.getPeerCertificate().fingerprint256, protocol: socket.getProtocol() ?? '' });
      socket.destroy();
    });
    socket.on('error', reject);
  });
}

describe('a scheduler with a certificate', () => {
  test('listens on every interface, with TLS 1.2 and newer alone', async () => {
    expect(scheduler.httpAddress).toBe(`0.0.0.0:${port()}`);
    expect((await get('/api/v1/health')).status).toBe(200);
    expect((await served({ maxVersion: 'TLSv1.2' })).protocol).toBe('TLSv1.2');
    await expect(served({ minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1' })).rejects.toThrow(/version|protocol/i);
  });

  test('names itself by https', async () => {
    const { token = '' } = (await scheduler.ensureFirstWorkspace({ issueToken: true })) as { readonly token?: string };
    const answer = await request(`https://localhost:${port()}/api/v1/gateway/objects`, {
      dispatcher: agent,
      method: 'POST',
      headers: { authorization: `Bearer ${token}` },
      body: JSON.stringify({ hash: 'a', size: 1, overwrite: true }),
    });
    const { presignedUrl } = (await answer.body.json()) as { readonly presignedUrl: string };
    expect(presignedUrl).toMatch(new RegExp(`^https://localhost:${port()}/`));
    const put = await request(presignedUrl, { dispatcher: agent, method: 'PUT', body: 'x' });
    expect(put.statusCode).toBe(200);
  });

  test('refuses a body over TLS so that its sender can read why', async () => {
    const answer = await request(`https://localhost:${port()}/endpoint/any`, {
      dispatcher: agent,
      method: 'POST',
      headers: { authorization: 'Bearer bad' },
      body: Buffer.alloc(8 * 1024 * 1024),
    });
    expect([answer.statusCode, await answer.body.json()]).toEqual([401, { message: 'Unauthorized' }]);
  });

  test('trusts nobody for coming from loopback, since a proxy may', async () => {
    expect((await get('/metrics')).status).toBe(401);
    expect((await get('/api/v1/discovery/prometheus')).status).toBe(401);
    const answer = await request(`https://localhost:${port()}/api/v1/gateway/auth/authorize`, {
      dispatcher: agent,
      method: 'POST',
    });
    expect(await answer.body.json()).toMatchObject({ ok: false });
  });

  test('gives new connections the certificate that has taken the place of the old one, without a restart', async () => {
    const before = await served();
    await writeCertificate();
    await scheduler.readFilesAgain();
    const after = await served();
    expect(after.fingerprint).not.toBe(before.fingerprint);
    expect(lines.join('')).toContain('https certificate replaced');
    // Earlier connections go on.
    expect((await get('/api/v1/health')).json).toEqual({ status: 'ok', version: expect.any(String) });
  });

  test.each([
    ['no certificate', async () => writeFileSync(cert, 'broken')],
    [
      'a key of another certificate',
      async () => writeFileSync(key, (await issueServerCertificate(ca, Date.now())).keyPem),
    ],
  ])('keeps the old one when the new files are %s, and says so', async (_, breakIt) => {
    await writeCertificate();
    await scheduler.readFilesAgain();
    const before = await served();
    await breakIt();
    lines.length = 0;
    await scheduler.readFilesAgain();
    await scheduler.readFilesAgain();
    expect((await served()).fingerprint).toBe(before.fingerprint);
    // Once for each problem.
    expect(lines.filter((line) => line.includes('https certificate not replaced'))).toHaveLength(1);
    expect((await get('/api/v1/health')).json).toMatchObject({
      status: 'ok',
      warnings: [expect.stringContaining('the certificate of before goes on')],
    });
    await writeCertificate();
    await scheduler.readFilesAgain();
    expect((await get('/api/v1/health')).json).toEqual({ status: 'ok', version: expect.any(String) });
  });
});

describe('a client of it', () => {
  const contexts = join(directory.path, 'contexts.json');
  const caFile = join(directory.path, 'ca.pem');
  const leafFile = join(directory.path, 'leaf.pem');
  let token = '';
  beforeAll(async () => {
    writeFileSync(caFile, ca.certPem);
    writeFileSync(
      leafFile,
      readFileSync(cert, 'utf8').split('-----END CERTIFICATE-----')[0] + '-----END CERTIFICATE-----\n',
    );
    token = String((await scheduler.ensureFirstWorkspace({ issueToken: true })).token);
    const local = { url: `https://localhost:${port()}`, token, workspaceId: '' };
    writeFileSync(contexts, JSON.stringify({ current: 'local', contexts: { local } }), { mode: 0o600 });
  });
  const { LONGSHORE_CA_BUNDLE: _, ...environment } = process.env;
  const run = promisify(execFile);
  const cli = async (args: readonly string[], said: NodeJS.ProcessEnv = {}) => {
    const env = { ...environment, LONGSHORE_CONTEXT_FILE: contexts, ...said };
    return run(process.execPath, [MAIN, ...args], { env }).catch(
      (error: unknown) => error as { stdout: string; stderr: string },
    );
  };
  const python = (said: NodeJS.ProcessEnv) =>
    run('python3', ['-c', "from longshore import client; print(client.call('/api/v1/workspace/current', 'it'))"], {
      env: { ...environment, LONGSHORE_CONTEXT_FILE: contexts, PYTHONPATH: 'python', ...said },
    }).catch((error: unknown) => error as { stdout: string; stderr: string });

  test('on the command line is told that the certificate is not trusted, and how it is', async () => {
    expect((await cli(['status'])).stderr).toMatch(/does not trust \(\w+\).*--ca-file or LONGSHORE_CA_BUNDLE/);
    expect((await cli(['status', '--ca-file', '/nowhere.pem'])).stderr).toMatch(
      /cannot read the CA file \/nowhere\.pem/,
    );
    const ready = `scheduler https://localhost:${port()}: ready`;
    expect((await cli(['status'], { LONGSHORE_CA_BUNDLE: caFile })).stdout).toContain(ready);
    expect((await cli(['status', '--ca-file', caFile])).stdout).toContain(ready);
    // The certificate itself serves as well as its authority.
    expect((await cli(['status', '--ca-file', leafFile])).stdout).toContain(ready);
  });

  test('in Python trusts the same file', async () => {
    const said = { LONGSHORE_URL: `https://localhost:${port()}`, LONGSHORE_TOKEN: token };
    expect((await python(said)).stderr).toMatch(/does not answer \(.*CERTIFICATE_VERIFY_FAILED/);
    expect((await python({ ...said, LONGSHORE_CA_BUNDLE: '/nowhere.pem' })).stderr).toMatch(
      /cannot use the CA file \/nowhere\.pem/,
    );
    expect((await python({ ...said, LONGSHORE_CA_BUNDLE: caFile })).stdout).toContain('external_id');
    expect((await python({ ...said, LONGSHORE_CA_BUNDLE: leafFile })).stdout).toContain('external_id');
  });

  test('finds the file in the context that keeps it', async () => {
    await cli(['context', 'use', 'local', '--ca-file', caFile]);
    expect((await cli(['status'])).stdout).toContain(': ready');
    expect((await python({})).stdout).toContain('external_id');
  });

  test('reads what the operator should know in status', async () => {
    writeFileSync(key, 'broken');
    await scheduler.readFilesAgain();
    expect((await cli(['status'])).stdout).toMatch(/: ready\nwarning: the files of LONGSHORE_HTTP_TLS_CERT/);
  });
});

describe('a start', () => {
  const open = (said: Readonly<Record<string, string>>) => openCertificate(settingsOf(said), pino({ level: 'silent' }));
  test('with one of the two files, or with files that are no certificate, ends and names the settings', async () => {
    await expect(open({ LONGSHORE_HTTP_TLS_CERT: cert })).rejects.toThrow(/LONGSHORE_HTTP_TLS_KEY: give both/);
    const missing = join(directory.path, 'missing.pem');
    await expect(open({ LONGSHORE_HTTP_TLS_CERT: missing, LONGSHORE_HTTP_TLS_KEY: key })).rejects.toThrow(
      /LONGSHORE_HTTP_TLS_CERT: .*missing\.pem cannot be read/,
    );
  });
});
