// Calls of deployments by the host of their address.
import { describe, expect, test } from 'vitest';
import { readHostLabel } from '../../../scheduler/api/http/invoke/host-form.ts';
import { aTarget, call, playCalls, played, STUB, tasks } from './invoke-fixture.ts';

playCalls();

describe('the host form', () => {
  const at = (host: string, path = '/', token = 'w', method: 'POST' | 'GET' | 'PUT' = 'POST') =>
    call(path, '{}', token, method, host);

  test.each([
    'hello-1a2b3c4d5e6f7081-v1.localhost:1994',
    'HELLO-1a2b3c4d5e6f7081-v1.localhost',
    'hello-1a2b3c4d5e6f7081-latest.localhost',
    'hello-1a2b3c4d5e6f7081.localhost',
    'hello-1a2b3c4d5e6f7081-v1.gpu.example.org',
    `${STUB}.localhost:1994`,
    `${STUB.toUpperCase()}.elsewhere.example`,
  ])('%s is served', async (host) => {
    expect((await at(host)).status).toBe(200);
    expect((await at(host, '/?n=1', 'w', 'GET')).status).toBe(200);
    expect(tasks.calls.at(-1)).toEqual({ input: '', query: { n: ['1'] } });
  });

  test.each([
    ['hello-1a2b3c4d5e6f7081-v2.localhost', 'w', 400, '{"message":"Invalid deployment"}'],
    ['other-1a2b3c4d5e6f7081-v1.localhost', 'w', 400, '{"message":"Invalid deployment"}'],
    ['other-1a2b3c4d5e6f7081-v1.localhost', '', 401, '{"message":"Unauthorized"}'],
    ['hello-1a2b3c4d5e6f7081-v1.localhost', '', 401, '{"message":"Unauthorized"}'],
    ['hello-1a2b3c4d5e6f7081-v1.localhost', 'bad', 401, '{"message":"Unauthorized"}'],
    ['hello-1a2b3c4d5e6f7081-v1.localhost', 'other', 401, '{"message":"Invalid token"}'],
  ])('%s with token "%s" is %i', async (host, token, status, text) => {
    const answer = await at(host, '/', token);
    expect([answer.status, answer.text]).toEqual([status, text]);
    expect(tasks.calls).toEqual([]);
  });

  test('a stopped deployment and a public one are what they are by path', async () => {
    played.target = aTarget({ active: false });
    expect((await at('hello-1a2b3c4d5e6f7081-v1.localhost')).text).toBe('{"message":"Deployment is not active"}');
    played.target = aTarget({ authorized: false });
    expect((await at('hello-1a2b3c4d5e6f7081-v1.localhost', '/', '')).status).toBe(200);
  });

  test('a label without a version counts below known domains alone; other hosts are routed as ever', async () => {
    expect((await at('hello-1a2b3c4d5e6f7081.example.org')).status).toBe(404);
    expect((await call('/endpoint/hello', '{}', 'w', 'POST', 'hello-1a2b3c4d5e6f7081.example.org')).status).toBe(200);
    expect((await call('/endpoint/hello', '{}', 'w', 'POST', 'app.localhost')).status).toBe(200);
  });

  test('a path below a label is nothing, and the label is nothing as a path', async () => {
    expect((await at('hello-1a2b3c4d5e6f7081-v1.localhost', '/endpoint/hello')).status).toBe(404);
    for (const base of ['/~host', '/%7Ehost', '/%7eh%6Fst', '/~%68%6f%73%74'])
      expect((await call(`${base}/hello-1a2b3c4d5e6f7081-v1`)).status).toBe(404);
    expect((await at('hello-1a2b3c4d5e6f7081-v1.localhost', '/', 'w', 'PUT')).status).toBe(405);
    expect(tasks.calls).toEqual([]);
  });

  test('labels are read by their shape', () => {
    expect(readHostLabel('a-b-1a2b3c4d5e6f7081-v12')).toEqual({
      kind: 'deployment',
      subdomain: 'a-b-1a2b3c4d5e6f7081',
      version: 12,
      port: null,
    });
    const latest = { kind: 'deployment', subdomain: 'a-1a2b3c4d5e6f7081', version: null };
    expect(readHostLabel('a-1a2b3c4d5e6f7081-latest')).toEqual({ ...latest, port: null });
    expect(readHostLabel('a-1a2b3c4d5e6f7081-8000')).toEqual({ ...latest, port: 8000 });
    expect(readHostLabel('a-1a2b3c4d5e6f7081-v2-80')).toEqual({ ...latest, version: 2, port: 80 });
    expect(readHostLabel(`${STUB}-8000`)).toEqual({ kind: 'stub', stubId: STUB, port: 8000 });
    const containerId = `sandbox-${STUB}-0123abcd`;
    expect(readHostLabel(`${containerId}-1`)).toEqual({ kind: 'container', containerId, stubId: STUB, port: 1 });
    for (const label of [containerId, `${STUB}-08`, `${STUB}-123456`, `endpoint-${STUB}-0123abcd-1`])
      expect(readHostLabel(label), label).toBeUndefined();
    const none = ['www', 'a-1a2b3c4-v1', 'a-1a2b3c4d5e6f708g-v1', '-1a2b3c4d5e6f7081-v1', 'a-1a2b3c4d5e6f7081-vx', ''];
    for (const label of none) expect(readHostLabel(label)).toBeUndefined();
  });
});
