// CreatePod and the calls around it, on a whole scheduler. No machine is there, so containers wait for one.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { aPlatform, NOBODY, WITH_FIELDS } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(() => platform.stop());

const SANDBOX = { stubType: 'sandbox', name: 'sandbox', handler: '', ports: [8000] };
const create = async (body: Json, token?: string): Promise<Json> => {
  const { status, json } = await platform.gateway('POST /pods', body, token === undefined ? {} : { token });
  // Clients give up at any other status.
  expect(status).toBe(200);
  return json;
};
const containers = async (): Promise<readonly Json[]> =>
  (await platform.gateway('GET /containers')).json['containers'] as readonly Json[];

test('a container is made at once, is listed, and ends by a stop', async () => {
  const stubId = await platform.stub(SANDBOX);
  const made = await create({ stubId });
  expect(made).toEqual({ ok: true, errorMsg: '', containerId: expect.stringMatching(`^sandbox-${stubId}-`), stubId });
  const again = await create({ stub_id: stubId });
  expect(again['containerId']).not.toBe(made['containerId']);
  const listed = (await containers()).find((one) => one['containerId'] === made['containerId']);
  expect(listed).toMatchObject({ stubId, status: 'PENDING', deploymentId: '' });
  const limits = await platform.call(`GET /api/v1/workspace/${platform.own.workspaceId}/limits`);
  expect(limits.json['counts']).toMatchObject({ sandboxes: { used: 2, limit: 200 } });
  for (const { containerId } of [made, again] as { containerId: string }[])
    expect((await platform.gateway(`POST /containers/${containerId}/stop`, {})).json['ok']).toBe(true);
  expect(await containers()).toEqual([]);
});

test('what no machine can ever serve is refused with the reason, and makes nothing', async () => {
  const stubId = await platform.stub({ ...SANDBOX, name: 'gpus', gpu: 'H100' });
  expect(await create({ stubId })).toMatchObject({ ok: false, errorMsg: expect.stringContaining('H100') });
  expect(await containers()).toEqual([]);
});

test('what is not a stub of this workspace, or of such a kind, is refused with a text and makes nothing', async () => {
  const stubId = await platform.stub(SANDBOX);
  const none = { ok: false, containerId: '', stubId: '' };
  const endpoint = await platform.stub({ name: 'e' });
  const deployed = await platform.stub({ stubType: 'pod/deployment', name: 'p', handler: '' });
  const refusals: readonly (readonly [Json, RegExp])[] = [
    [{}, /^stubId is missing/],
    [{ checkpointId: 'c' }, /^checkpoints are not available/],
    [{ checkpointId: 'c', stubId }, /^checkpoints are not available/],
    [{ stubId: NOBODY }, /^stubId .* is not a stub of this workspace$/],
    [{ stubId: 'nonsense' }, /is not a stub of this workspace$/],
    [{ stubId: endpoint }, /^a stub of type endpoint/],
    [{ stubId: deployed }, /^a stub of type pod\/deployment/],
  ];
  for (const [body, text] of refusals) {
    expect(await create(body)).toEqual({ ...none, errorMsg: expect.stringMatching(text) });
  }
  // Also a public stub is its own workspace's to run.
  const open = await platform.stub({ ...SANDBOX, authorized: false });
  for (const id of [stubId, open])
    expect(await create({ stubId: id }, platform.other.token)).toMatchObject({
      ...none,
      errorMsg: expect.stringMatching(/not a stub of this workspace/),
    });
  for (const token of ['', 'nonsense', platform.revoked])
    expect((await platform.gateway('POST /pods', { stubId: open }, { token })).status).toBe(401);
  expect(await containers()).toEqual([]);
});

test('a workspace makes no more than its limit, and what has ended leaves room', async () => {
  const limits = `/api/v1/workspace/${platform.own.workspaceId}/limits`;
  const set = (sandboxes: number | null) =>
    platform.call(`PUT ${limits}`, { counts: { sandboxes } }, { token: platform.admin.token });
  expect((await set(1)).status).toBe(200);
  const stubId = await platform.stub({ ...SANDBOX, stubType: 'pod/run' });
  const { containerId } = await create({ stubId });
  expect(await create({ stubId })).toMatchObject({
    ok: false,
    errorMsg: expect.stringMatching(/its limit counts\.sandboxes allows/),
  });
  await platform.gateway(`POST /containers/${containerId as string}/stop`, {});
  const { ok, containerId: second } = await create({ stubId });
  expect(ok).toBe(true);
  await platform.gateway(`POST /containers/${second as string}/stop`, {});
  await set(null);
});

test('a pod is deployed and has its URLs; a stub of CreatePod is not deployed', async () => {
  const stubId = await platform.stub({ stubType: 'pod/deployment', name: 'p', handler: '', ports: [80] });
  const { json } = await platform.gateway('POST /stubs/deploy', { stubId, name: 'web' });
  expect(json).toMatchObject({ ok: true, version: 1, invokeUrl: `http://${platform.address}/pod/web/v1/80` });
  const run = await platform.stub({ ...SANDBOX, stubType: 'pod/run', ports: [80, 81] });
  expect((await platform.gateway('POST /stubs/deploy', { stubId: run, name: 'web' }, WITH_FIELDS)).json).toMatchObject({
    ok: false,
    errMsg: 'a stub of type pod/run runs by CreatePod: deploy one of type pod/deployment',
  });
  const urlOf = async (id: string, urlType = '') =>
    (await platform.gateway(`GET /stubs/${id}/url?urlType=${urlType}`)).json['url'];
  expect(await urlOf(run)).toBe(`http://${platform.address}/pod/id/${run}/<PORT>`);
  const port = platform.address.split(':')[1] ?? '';
  expect(await urlOf(run, 'host')).toBe(`http://${run}-<PORT>.localhost:${port}`);
  // Nothing runs, and nothing would: the caller hears that at once.
  expect((await platform.call(`GET /pod/id/${run}/80/`)).status).toBe(503);
  expect((await platform.call(`GET /pod/id/${run}/82/`)).status).toBe(404);
});
