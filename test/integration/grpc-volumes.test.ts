// Volumes and secrets of published clients over gRPC, on a real scheduler. No machine has files here: the bytes are in
// test/hosts/python-client.test.ts.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { GrpcClient } from '../helpers/grpc-client.ts';
import { waitFor } from '../helpers/programs.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

let platform: Platform;
let client: GrpcClient;
beforeAll(async () => {
  platform = await aPlatform({}, 'embedded');
  client = new GrpcClient(platform.grpcAddress);
}, 120_000);
afterAll(async () => {
  client.close();
  await platform.stop();
});

const call = async (path: string, message: Json = {}, token = platform.own.token): Promise<Json> => {
  const called = await client.call(path, message, { token });
  expect([called.code, called.details]).toEqual([0, '']);
  return called.answer ?? {};
};
const volume = (name: string, message: Json = {}): Promise<Json> => call(`volume.VolumeService/${name}`, message);
const secret = (name: string, message: Json = {}): Promise<Json> => call(`secret.SecretService/${name}`, message);

describe('volumes', () => {
  test('are made, listed and deleted, and one that no machine has is empty', async () => {
    expect(await volume('GetOrCreateVolume', { name: 'models' })).toMatchObject({ ok: true });
    expect(await volume('ListVolumes')).toMatchObject({
      ok: true,
      volumes: [{ name: 'models', workspace_id: platform.own.workspaceId, workspace_name: 'own' }],
    });
    for (const path of ['models', 'models/', '/models//', 'models/*'])
      expect(await volume('ListPath', { path })).toEqual({ ok: true, err_msg: '', path_infos: [] });
    expect(await volume('StatPath', { path: 'models' })).toMatchObject({ ok: true, path_info: { is_dir: true } });
    // The client reads the text, and takes the path for a file to be.
    expect(await volume('StatPath', { path: 'models/a.txt' })).toMatchObject({
      ok: true,
      err_msg: 'the volume has no such file',
      path_info: null,
    });
    expect(await volume('DeleteVolume', { name: 'models' })).toEqual({ ok: true, err_msg: '' });
    expect((await volume('ListVolumes'))['volumes']).toEqual([]);
  });

  test('a volume that a deployment mounts stays', async () => {
    const made = await volume('GetOrCreateVolume', { name: 'mounted' });
    const { id } = made['volume'] as Json;
    await platform.deploy('mounts', { volumes: [{ id, mountPath: 'data' }] });
    expect(await volume('DeleteVolume', { name: 'mounted' })).toMatchObject({
      ok: false,
      err_msg: expect.stringContaining('mounts/v1'),
    });
  });

  test.each([
    ['ListPath', { path: 'files/../../etc' }, 'path must not have . or .. as a name'],
    ['DeletePath', { path: 'files' }, 'path must name an entry of the volume'],
    ['DeletePath', { path: '' }, 'path must name an entry of the volume'],
    ['DeletePath', { path: 'files/none*' }, 'the volume has no such file'],
    ['MovePath', { originalPath: 'files/a', newPath: 'other/a' }, 'new_path must be in the volume of original_path'],
    ['MovePath', { originalPath: 'files/a', newPath: 'files' }, 'new_path must name a file'],
    ['CreatePresignedURL', { volumeName: 'files', volumePath: '../a' }, 'volume_path must not have . or ..'],
    ['CreatePresignedURL', { volumeName: 'files', volumePath: 'a', method: 9 }, 'method must be'],
    ['CreatePresignedURL', { volumeName: 'files', volumePath: 'a', method: 3 }, 'params must name a part'],
    ['CreateMultipartUpload', { volumeName: 'files', volumePath: 'a', fileSize: '9' }, 'chunk_size must be at least 1'],
    [
      'CreateMultipartUpload',
      { volumeName: 'files', volumePath: 'a', fileSize: '10001', chunkSize: '1' },
      'at most 10000',
    ],
    ['CompleteMultipartUpload', { volumeName: 'files', volumePath: 'a', uploadId: 'x' }, 'upload_id names no upload'],
    ['AbortMultipartUpload', { volumeName: 'files', volumePath: '', uploadId: 'x' }, 'volume_path must name a file'],
  ])('%s %j is refused with a text', async (name, message, text) => {
    await volume('GetOrCreateVolume', { name: 'files' });
    expect(await volume(name, message)).toMatchObject({ ok: false, err_msg: expect.stringContaining(text) });
  });

  test('addresses lead to the HTTP side, and live as long as was asked for', async () => {
    await platform.gateway('POST /volumes', { name: 'served', driver: 'shared' });
    expect(await volume('GetFileServiceInfo')).toMatchObject({ ok: true, enabled: true, command_version: 1 });
    const before = Date.now();
    for (const [method, status] of [
      [0, 502],
      [2, 502],
      [1, 502],
    ] as const) {
      const { url } = await volume('CreatePresignedURL', {
        volumeName: 'served',
        volumePath: '/a.bin',
        expires: 60,
        method,
      });
      const address = new URL(String(url));
      expect([address.host, address.searchParams.get('path')]).toEqual([platform.address, 'a.bin']);
      const expires = Number(address.searchParams.get('expires')) * 1000;
      expect(expires).toBeGreaterThan(before);
      expect(expires).toBeLessThan(Date.now() + 120_000);
      // The address is good; no machine has the files.
      const sent = method === 0 ? 'GET' : method === 2 ? 'HEAD' : 'PUT';
      expect((await fetch(address, { method: sent, ...(method === 1 ? { body: 'x' } : {}) })).status).toBe(status);
      address.searchParams.set('path', 'b.bin');
      expect((await fetch(address, { method: 'HEAD' })).status).toBe(403);
    }
    const part = await volume('CreatePresignedURL', {
      volumeName: 'served',
      volumePath: 'a.bin',
      method: 3,
      params: { uploadId: '0123456789abcdef.10.4', partNumber: 3 },
    });
    const address = new URL(String(part['url']));
    expect((await fetch(address, { method: 'PUT', body: '89' })).status).toBe(502);
    address.searchParams.set('part', '2');
    expect((await fetch(address, { method: 'PUT', body: '89' })).status).toBe(403);
    // A machine that is away is told as a text: the client prints none of a status.
    expect(await volume('ListPath', { path: 'served' })).toMatchObject({
      ok: false,
      err_msg: expect.stringContaining('no connected machine'),
    });
  });
});

describe('secrets', () => {
  test('are made, changed, listed without their values, and deleted', async () => {
    expect(await secret('CreateSecret', { name: 'API_KEY', value: 'one' })).toMatchObject({
      ok: true,
      name: 'API_KEY',
    });
    expect(await secret('CreateSecret', { name: 'API_KEY', value: 'two' })).toMatchObject({
      ok: false,
      err_msg: 'there is a secret API_KEY already',
    });
    expect(await secret('UpdateSecret', { name: 'API_KEY', value: 'two', clearHosts: true })).toMatchObject({
      ok: true,
    });
    const listed = await secret('ListSecrets');
    expect(listed['secrets']).toMatchObject([{ name: 'API_KEY', value: '', hosts: [], placeholder: '' }]);
    expect(JSON.stringify(listed)).not.toContain('two');
    expect(await secret('DeleteSecret', { name: 'API_KEY' })).toMatchObject({ ok: true });
    expect((await secret('ListSecrets'))['secrets']).toEqual([]);
  });

  test('a value is not shown, whoever asks, unless the operator allows it', async () => {
    await secret('CreateSecret', { name: 'HIDDEN', value: 'very secret' });
    for (const token of [platform.own.token, platform.admin.token]) {
      const answer = await call('secret.SecretService/GetSecret', { name: 'HIDDEN' }, token);
      expect(answer).toMatchObject({
        ok: false,
        err_msg: expect.stringContaining('LONGSHORE_SECRET_VALUES'),
        secret: null,
      });
    }
  });

  test('hosts are refused with a text, and nothing is kept', async () => {
    for (const name of ['CreateSecret', 'UpdateSecret'])
      expect(await secret(name, { name: 'BOUND', value: 'x', hosts: ['api.example.org'] })).toMatchObject({
        ok: false,
        err_msg: expect.stringContaining('hosts is not taken'),
      });
    expect(JSON.stringify(await secret('ListSecrets'))).not.toContain('BOUND');
  });
});

test('where the operator allows it, full tokens read values, and the trail has each reading', async () => {
  const open = await aPlatform({ LONGSHORE_SECRET_VALUES: 'full' }, 'embedded');
  const caller = new GrpcClient(open.grpcAddress);
  const ask = async (name: string, message: Json, token = open.own.token) =>
    (await caller.call(`secret.SecretService/${name}`, message, { token })).answer;
  await ask('CreateSecret', { name: 'SHOWN', value: 'very secret' });
  const registry = { registry: 'r.example.org', username: 'u', password: 'p', repositories: ['*'] };
  await ask('CreateSecret', { name: 'LONGSHORE_REGISTRY_A', value: JSON.stringify(registry) });
  expect(await ask('GetSecret', { name: 'SHOWN' })).toMatchObject({ ok: true, secret: { value: 'very secret' } });
  expect(await ask('GetSecret', { name: 'SHOWN' }, open.restricted)).toMatchObject({
    ok: false,
    err_msg: 'Unauthorized Access',
  });
  expect(await ask('GetSecret', { name: 'LONGSHORE_REGISTRY_A' })).toMatchObject({ ok: false, secret: null });
  const trail = async (): Promise<readonly Json[]> => {
    const path = `/api/v1/events/${open.own.workspaceId}/history?event_types=audit.secret.read`;
    return (await open.call(`GET ${path}`)).json['events'] as readonly Json[];
  };
  await waitFor(async () => (await trail()).length > 0, 'the reading is in the trail');
  const read = await trail();
  expect(read).toHaveLength(1);
  expect(JSON.stringify(read)).toContain('SHOWN');
  expect(JSON.stringify(read)).not.toContain('very secret');
  caller.close();
  await open.stop();
}, 120_000);
