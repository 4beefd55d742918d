import { describe, expect, test } from 'vitest';
import { readHostLabel } from '../../../scheduler/api/http/invoke/host-form.ts';
import { canonicalJson } from '../../../scheduler/workspaces/deployments/stubs.ts';
import {
  containerUrl,
  hostUrl,
  invokeUrl,
  nameUrl,
  pathUrl,
  portOf,
  sanitiseName,
  subdomainOf,
} from '../../../scheduler/workspaces/deployments/urls.ts';
import type { UrlTarget } from '../../../scheduler/workspaces/deployments/urls.ts';

const STUB = '05ed1b36-2098-4790-99eb-732099e99ca6';
const deployed: UrlTarget = {
  stubId: STUB,
  stubType: 'endpoint/deployment',
  public: false,
  deployment: { name: 'hello', version: 3, subdomain: 'hello-1234567812345678' },
};
const plain: UrlTarget = { ...deployed, deployment: null };
const BASE = 'http://127.0.0.1:1994';

const labelOf = (of: Partial<Parameters<typeof subdomainOf>[1]>, key = new Uint8Array(32)): string =>
  subdomainOf(key, { workspaceId: 'w1', name: 'hello', stubType: 'endpoint/deployment', ...of });

describe('invoke URLs', () => {
  test('in path form name kind, name and version, or the stub', () => {
    expect(pathUrl(BASE, deployed)).toBe(`${BASE}/endpoint/hello/v3`);
    expect(pathUrl(BASE, { ...deployed, public: true })).toBe(`${BASE}/endpoint/public/${STUB}`);
    expect(pathUrl(BASE, plain)).toBe(`${BASE}/endpoint/id/${STUB}`);
    expect(pathUrl(BASE, { ...deployed, deployment: { name: 'a b/c', version: 1, subdomain: 's' } })).toBe(
      `${BASE}/endpoint/a%20b%2Fc/v1`,
    );
  });

  test('in host form put version and deployment into the first label', () => {
    expect(hostUrl(BASE, deployed, { invokeDomain: null })).toBe('http://hello-1234567812345678-v3.localhost:1994');
    expect(hostUrl(BASE, deployed, { invokeDomain: 'run.example.com' })).toBe(
      'http://hello-1234567812345678-v3.run.example.com:1994',
    );
    expect(hostUrl('http://[::1]:1994', deployed, { invokeDomain: null })).toBe(
      'http://hello-1234567812345678-v3.localhost:1994',
    );
    expect(hostUrl('http://[fd00::1]:1994', deployed, { invokeDomain: null })).toBe(
      pathUrl('http://[fd00::1]:1994', deployed),
    );
    expect(hostUrl('http://10.0.0.5:1994', deployed, { invokeDomain: null })).toBe(
      pathUrl('http://10.0.0.5:1994', deployed),
    );
    expect(hostUrl('https://api.example.com', plain, { invokeDomain: null })).toBe(`https://${STUB}.api.example.com`);
  });

  test('of a name stay when the version changes, and of a public one need no token', () => {
    const open = { ...deployed, public: true };
    const named = (target: UrlTarget, invokeDomain: string | null, withHost = false): string =>
      nameUrl(BASE, target, { workspaceId: 'w', withHost }, { invokeDomain });
    expect(named(open, null)).toBe(`${BASE}/endpoint/public/w/hello`);
    expect(named(deployed, null)).toBe(`${BASE}/endpoint/hello`);
    expect(named(open, 'run.example.com')).toBe('http://hello-1234567812345678.run.example.com:1994');
    const pod: UrlTarget = { ...open, stubType: 'pod/deployment', port: '<PORT>' };
    expect(named(pod, null)).toBe(`${BASE}/pod/public/w/hello/<PORT>`);
    expect(named(pod, null, true)).toBe('http://hello-1234567812345678-latest-<PORT>.localhost:1994');
    for (const label of ['hello-1234567812345678', 'hello-1234567812345678-latest-80'])
      expect(readHostLabel(label)).toMatchObject({ subdomain: 'hello-1234567812345678', version: null });
    expect(nameUrl('http://10.0.0.5:1994', open, { workspaceId: 'w', withHost: true }, { invokeDomain: null })).toBe(
      'http://10.0.0.5:1994/endpoint/public/w/hello',
    );
  });

  test('of pods end in their port', () => {
    const pod: UrlTarget = { ...plain, stubType: 'pod', port: '8080' };
    expect(pathUrl(BASE, pod)).toBe(`${BASE}/pod/id/${STUB}/8080`);
    expect(pathUrl(BASE, { ...pod, public: true })).toBe(`${BASE}/pod/public/${STUB}/8080`);
    expect(hostUrl(BASE, pod, { invokeDomain: null })).toBe(`http://${STUB}-8080.localhost:1994`);
    expect([portOf('pod', []), portOf('pod/run', [1, 2]), portOf('sandbox', [80])]).toEqual(['<PORT>', '<PORT>', '80']);
    expect(portOf('endpoint/deployment', [80])).toBeUndefined();
  });

  test('have the host form by themselves only where a domain is set', () => {
    expect(invokeUrl(BASE, deployed, { invokeDomain: null })).toBe(pathUrl(BASE, deployed));
    expect(invokeUrl(BASE, deployed, { invokeDomain: 'x.org' })).toBe(
      hostUrl(BASE, deployed, { invokeDomain: 'x.org' }),
    );
    expect(invokeUrl(BASE, deployed, { invokeDomain: 'x.org' }, 'path')).toBe(pathUrl(BASE, deployed));
  });
});

describe('host labels', () => {
  test.each([
    ['hello', 'hello'],
    ['My App (v2)', 'my-app-v2'],
    ['--x__y--', 'x-y'],
    ['日本', ''],
    ['', ''],
  ])('%j becomes %j', (name, label) => {
    expect(sanitiseName(name)).toBe(label);
  });

  test('leave room for a version in 63 characters, and never end in a dash', () => {
    for (const name of ['x'.repeat(200), `${'a'.repeat(46)} b`]) {
      const label = labelOf({ name });
      expect(`${label}-v123456`.length).toBeLessThanOrEqual(63);
      expect(label).toMatch(/^[a-z0-9]+(?:-[a-z0-9]+)*$/);
    }
  });

  test('differ between workspaces and kinds, and stay the same', () => {
    const label = labelOf({});
    expect(label).toMatch(/^hello-[0-9a-f]{16}$/);
    expect(labelOf({})).toBe(label);
    expect(labelOf({ workspaceId: 'w2' })).not.toBe(label);
    expect(labelOf({ stubType: 'taskqueue/deployment' })).not.toBe(label);
    expect(labelOf({ name: 'Hello' })).not.toBe(label);
  });

  test('cannot be told without the key of the installation', () => {
    expect(labelOf({}, new Uint8Array(32).fill(1))).not.toBe(labelOf({}));
  });
});

test('two configurations that differ in the order of fields only are the same', () => {
  const one = { a: 1, b: { d: [1, { y: 1, x: 2 }], c: null }, e: undefined };
  const other = { b: { c: null, d: [1, { x: 2, y: 1 }] }, a: 1 };
  expect(canonicalJson(one)).toBe(canonicalJson(other));
  expect(canonicalJson([1, 2])).not.toBe(canonicalJson([2, 1]));
});

test('the address of a container’s port has the form that the installation is set up for', () => {
  const container = { stubId: STUB, containerId: `sandbox-${STUB}-0a1b2c3d` };
  const urlOf = (base: string, invokeDomain: string | null) => containerUrl(base, container, 8000, { invokeDomain });
  expect(urlOf('http://127.0.0.1:1994', null)).toBe(
    `http://127.0.0.1:1994/sandbox/container/${STUB}/${container.containerId}/8000`,
  );
  expect(urlOf('http://10.0.0.1:1994', 'run.example')).toBe(`http://${container.containerId}-8000.run.example:1994`);
  const url = urlOf('https://api.example', 'run.example');
  expect(url).toBe(`https://${container.containerId}-8000.run.example`);
  const [label = ''] = new URL(url).hostname.split('.');
  expect(label.length).toBeLessThanOrEqual(63);
  expect(readHostLabel(label)).toMatchObject({ kind: 'container', containerId: container.containerId, port: 8000 });
});
