// `s3` volumes and buckets of workspaces through a whole installation: a scheduler, an agent, a mount helper, and an S3
// server that checks signatures.
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { S3Client, GetObjectCommand, ListObjectsV2Command, PutObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { TestDocker } from '../helpers/docker.ts';
import { docker } from '../helpers/docker.ts';
import type { TestMounts } from '../helpers/mounts.ts';
import { testMounts, volumesOn } from '../helpers/mounts.ts';
import type { Deployment } from '../helpers/platform.ts';
import { MAIN, Platform, jsonOf } from '../helpers/platform.ts';
import type { S3Server } from '../helpers/s3-server.ts';
import { anS3Server } from '../helpers/s3-server.ts';
import { waitFor } from '../helpers/services.ts';

const MIB = 1024 * 1024;
let engine: TestDocker;
let server: S3Server;
let mounts: TestMounts;
let platform: Platform;
let s3: S3Client;
let app: Deployment;
beforeAll(async () => {
  engine = await docker();
  server = await anS3Server(engine);
  const { endpoint, credentials } = server;
  s3 = new S3Client({ endpoint, region: 'us-east-1', forcePathStyle: true, credentials });
  const network = new URL(endpoint).hostname.replace(/\.\d+$/, '.0/24');
  mounts = testMounts({ ...volumesOn(server), LONGSHORE_BUCKET_ALLOW: network });
  await mounts.start();
  platform = new Platform(engine, { LONGSHORE_MOUNTS_DIR: mounts.directory });
  await platform.start();
  await secret('ACCESS', credentials.accessKeyId);
  await secret('HIDDEN', credentials.secretAccessKey);
  const { volume } = await platform.gateway<{ volume: { id: string } }>('/volumes', { name: 'data', driver: 's3' });
  app = await platform.deploy({
    app: 'bucket.py',
    handler: 'handler',
    name: 'bucket',
    keepWarmSeconds: 600,
    volumes: [
      { id: volume.id, mountPath: 'data' },
      { mountPath: 'mine', config: config() },
      { mountPath: 'fixed', config: config({ readOnly: true }) },
    ],
  });
});
afterAll(async () => {
  // Undefined after a failed start.
  (s3 as S3Client | undefined)?.destroy();
  await (platform as Platform | undefined)?.stop();
  await (mounts as TestMounts | undefined)?.cleanUp();
  await engine.cleanUp();
});

const secret = async (name: string, value: string): Promise<void> => {
  const made = await platform.call(`/api/v1/secret/${platform.workspaceId}`, { body: { name, value } });
  expect(made.status, made.text).toBe(201);
};
const config = (more: Readonly<Record<string, unknown>> = {}) => ({
  bucketName: server.bucket,
  endpointUrl: server.endpoint,
  accessKey: 'ACCESS',
  secretKey: 'HIDDEN',
  ...more,
});
const inside = async <T = unknown>(work: Readonly<Record<string, unknown>>, of = app): Promise<T> => {
  const answer = await platform.invoke(of, work);
  if (answer.status !== 200) throw new Error(`${JSON.stringify(work)} was answered ${answer.text}`);
  return jsonOf<T>(answer);
};
const run = promisify(execFile);
const longshore = async (...args: readonly string[]): Promise<string> => {
  const env = { ...platform.env(), LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token };
  return (await run(process.execPath, [MAIN, ...args], { env })).stdout;
};
const keys = async (prefix: string): Promise<string[]> => {
  const listed = await s3.send(new ListObjectsV2Command({ Bucket: server.bucket, Prefix: prefix }));
  return (listed.Contents ?? []).map(({ Key: key }) => key ?? '');
};

test('a handler writes into its bucket and reads from it; the read-only mount refuses; keys are nowhere in sight', async () => {
  await s3.send(new PutObjectCommand({ Bucket: server.bucket, Key: 'given.txt', Body: 'from outside' }));
  expect(await inside({ do: 'read', path: '/volumes/mine/given.txt' })).toBe('from outside');
  await inside({ do: 'write', path: '/mnt/code/mine/written.txt', text: 'from inside' });
  const { Body: body } = await s3.send(new GetObjectCommand({ Bucket: server.bucket, Key: 'written.txt' }));
  expect(await body?.transformToString()).toBe('from inside');
  expect(await inside({ do: 'read', path: '/volumes/fixed/given.txt' })).toBe('from outside');
  const refused = await platform.invoke(app, { do: 'write', path: '/volumes/fixed/x', text: 'no' });
  expect([refused.status, refused.text]).toEqual([500, expect.stringContaining('Read-only file system')]);
  const environment = JSON.stringify(await inside({ do: 'environment' }));
  expect(environment).not.toContain(server.credentials.secretAccessKey);
  const [container] = await platform.containers();
  const found = await engine.client.getContainer(container?.Id ?? '').inspect();
  expect(JSON.stringify(found)).not.toContain(server.credentials.secretAccessKey);
  const stateDir = join(platform.dataDir, 'agent');
  const files = readdirSync(stateDir).filter((name) => name.endsWith('.json'));
  for (const text of [
    platform.agent.log(),
    platform.scheduler.log(),
    ...files.map((name) => readFileSync(join(stateDir, name), 'utf8')),
  ])
    expect(text).not.toContain(`"${server.credentials.secretAccessKey}"`);
});

test('files of an s3 volume are objects below its workspace, and every command works on them', async () => {
  await inside({ do: 'write', path: '/volumes/data/hello.txt', text: 'hello' });
  const below = `team/${platform.workspaceId}/`;
  expect((await keys(below)).some((key) => key.endsWith('/hello.txt'))).toBe(true);
  const folder = join(platform.directory, 'given');
  mkdirSync(join(folder, 'deep'), { recursive: true });
  writeFileSync(join(folder, 'large.bin'), Buffer.alloc(20 * MIB, 'x'));
  for (let at = 0; at < 20; at += 1) writeFileSync(join(folder, 'deep', `ü ${at}.txt`), `file ${at}`);
  await longshore('volume', 'cp', folder, 'data:given');
  expect(await inside({ do: 'read', path: '/volumes/data/given/deep/ü 7.txt' })).toBe('file 7');
  expect(
    (await longshore('volume', 'ls', 'data:given', '--recursive')).split('\n').filter((line) => line.includes('.txt')),
  ).toHaveLength(20);
  expect(await longshore('volume', 'size', 'data:given')).toContain('20');
  await longshore('volume', 'mv', 'data:given/large.bin', 'data:given/moved.bin');
  const back = join(platform.directory, 'back');
  await longshore('volume', 'cp', 'data:given', back);
  expect(readFileSync(join(back, 'moved.bin')).equals(readFileSync(join(folder, 'large.bin')))).toBe(true);
  expect(readdirSync(join(back, 'deep'))).toHaveLength(20);
  await longshore('volume', 'rm', 'data:given', '--recursive');
  expect(await inside({ do: 'list', path: '/volumes/data' })).toEqual(['hello.txt']);
});

test('a mount that breaks ends its containers with mount_error, and the next call has a new one', async () => {
  const [before] = await platform.containers();
  for (const pid of await mounts.daemons()) process.kill(pid, 'SIGKILL');
  await waitFor(
    async () => (await platform.containers()).every(({ Id: id }) => id !== before?.Id),
    'the container has ended',
    30_000,
  );
  expect(await inside({ do: 'read', path: '/volumes/mine/given.txt' })).toBe('from outside');
  expect(platform.agent.log()).toContain('"reason":"mount_error"');
});

test('an address that the operator did not open, a wrong key and a missing secret are said to the caller', async () => {
  const deploy = async (name: string, more: Readonly<Record<string, unknown>>): Promise<Deployment> =>
    platform.deploy({
      app: 'bucket.py',
      handler: 'handler',
      name,
      volumes: [{ mountPath: 'm', config: config(more) }],
    });
  const closed = await platform.invoke(await deploy('closed', { endpointUrl: 'http://169.254.169.254' }), {
    do: 'environment',
  });
  expect([closed.status, closed.text]).toEqual([500, expect.stringContaining('LONGSHORE_BUCKET_ALLOW')]);
  await secret('WRONG', 'not-the-key');
  const wrong = await platform.invoke(await deploy('wrong', { secretKey: 'WRONG' }), { do: 'environment' });
  expect([wrong.status, wrong.text]).toEqual([500, expect.stringContaining('refuses the access key')]);
  await expect(deploy('unknown', { secretKey: 'NOBODY' })).rejects.toThrow('NOBODY');
});

test('a deleted s3 volume leaves no object', async () => {
  const { volume } = await platform.gateway<{ volume: { id: string } }>('/volumes', { name: 'brief', driver: 's3' });
  const file = join(platform.directory, 'one.txt');
  writeFileSync(file, 'one');
  await longshore('volume', 'cp', file, 'brief:one.txt');
  const below = `team/${platform.workspaceId}/${volume.id}`;
  expect(await keys(below)).toContain(`${below}/one.txt`);
  await longshore('volume', 'delete', 'brief', '--yes');
  await waitFor(
    async () => (await keys(below)).every((key) => !key.endsWith('one.txt')),
    'its objects are gone',
    30_000,
  );
});
