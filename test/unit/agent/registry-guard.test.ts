import { expect, test, vi } from 'vitest';
import { withGuardedPulls } from '#agent/images/guard/guarded-pulls.ts';
import { RegistryGuard } from '#agent/images/registry-guard.ts';
import type { ContainerRuntime } from '#agent/containers/runtime.ts';
import type { RegistryGuardParts } from '#agent/images/registry-guard.ts';

const NAMES: Readonly<Record<string, readonly string[]>> = {
  localhost: ['127.0.0.1', '::1'],
  'localhost.': ['127.0.0.1'],
  'rebound.example': ['203.0.113.7', '127.0.0.1'],
  'meta.example': ['169.254.169.254'],
  'private.example': ['10.20.0.1'],
  // The system's resolver reads numbers as addresses.
  '2130706433': ['127.0.0.1'],
  '0x7f.1': ['127.0.0.1'],
};

function guarded(parts: Partial<RegistryGuardParts> = {}) {
  const asked: string[] = [];
  const guard = new RegistryGuard({
    opened: [],
    closedRanges: ['10.66.0.0/16'],
    ownAddresses: () => ['198.51.100.9'],
    bridgeRanges: () => Promise.resolve(['172.18.0.0/16']),
    addressesOf: (host) =>
      NAMES[host] === undefined ? Promise.reject(new Error('no such host')) : Promise.resolve(NAMES[host]),
    ...parts,
  });
  const runtime = withGuardedPulls(
    {
      pull: (reference: string) => Promise.resolve(String(asked.push(reference))),
      registryDigest: (reference: string) => Promise.resolve(String(asked.push(reference))),
    } as unknown as ContainerRuntime,
    {
      guard,
      // As with an engine on another machine, which asks registries itself.
      proxy: () => undefined,
      settings: () => Promise.reject(new Error('it is not asked')),
      proxies: {},
      tunnel: () => Promise.reject(new Error('there is no proxy')),
      trustFor: () => Promise.reject(new Error('it is not asked')),
    },
  );
  return { runtime, guard, asked };
}

const OPTIONS = { auth: undefined, silenceMs: 1, signal: AbortSignal.timeout(1), onProgress: vi.fn() };

test.for([
  '127.0.0.1:1994/a/b:latest',
  '127.9.9.9/a',
  'localhost/a',
  'localhost:5000/a',
  'localhost.:80/a',
  '0.0.0.0:80/a',
  '[::1]:80/a',
  '[::]:80/a',
  '[::ffff:127.0.0.1]:80/a',
  '[64:ff9b::a9fe:a9fe]:80/a',
  '2130706433:80/a',
  '0x7f.1:80/a',
  '169.254.169.254/latest/meta-data',
  '[fe80::1]:80/a',
  '[fd00:ec2::254]/a',
  '100.100.100.200/a',
  'meta.example/a',
  'rebound.example/a',
  '198.51.100.9:5432/a',
  '172.18.0.5:80/a',
  '10.66.1.1:80/a',
  '224.0.0.1:80/a',
])('the engine is not asked about an image at a closed address: %s', async (image) => {
  const { runtime, asked } = guarded();
  const message = /registry \S+ is closed .* LONGSHORE_AGENT_REGISTRIES/;
  await expect(runtime.pull(image, OPTIONS)).rejects.toThrow(message);
  await expect(runtime.registryDigest(image, undefined, 1)).rejects.toThrow(message);
  expect(asked).toEqual([]);
});

test.for([
  'python:3.12',
  'docker.io/a/b',
  'private.example/a',
  '192.168.1.5:5000/a',
  '203.0.113.7/a',
  'unknown.example/a',
])('public and private registries stay open: %s', async (image) => {
  const { runtime, asked } = guarded();
  await runtime.pull(image, OPTIONS);
  expect(asked).toEqual([image]);
});

test('an operator opens registries by name and by range, and no other port of theirs', async () => {
  const { runtime, asked } = guarded({ opened: ['127.0.0.1:5000', 'Localhost:5000', '10.66.7.0/24'] });
  for (const image of ['127.0.0.1:5000/a', 'localhost:5000/a', '10.66.7.7:80/a']) await runtime.pull(image, OPTIONS);
  for (const image of ['127.0.0.1:5001/a', 'localhost/a', '10.66.8.7/a'])
    await expect(runtime.pull(image, OPTIONS)).rejects.toThrow('is closed to images');
  expect(asked).toHaveLength(3);
});

test('a mirror of the pool and the port of built images are the operator’s', async () => {
  const { runtime, asked } = guarded();
  await runtime.pull('127.0.0.1:5000/a', { ...OPTIONS, isOperators: true });
  expect(asked).toEqual(['127.0.0.1:5000/a']);
});

test.for([
  ['9.9.9.9', '10.20.0.1', false],
  ['9.9.9.9', '192.168.1.5', false],
  ['9.9.9.9', '100.64.0.1', false],
  ['9.9.9.9', 'fd12::1', false],
  ['9.9.9.9', '::ffff:10.20.0.1', false],
  ['9.9.9.9', 'private.example', false],
  // A proxy hides who led there.
  ['', '10.20.0.1', false],
  ['9.9.9.9', '8.8.8.8', true],
  ['10.20.0.9', '10.20.0.1', true],
  ['10.20.0.9', '169.254.169.254', false],
  ['10.20.0.9', '127.0.0.1', false],
  ['9.9.9.9', '10.66.7.7', true],
] as const)('a server at %s leads to %s: %s', async ([ledBy, host, isOpen]) => {
  const { guard } = guarded({ opened: ['10.66.7.0/24'] });
  const found = guard.addressesOf(host, 'registry.example', ledBy);
  if (isOpen) expect(await found).toHaveLength(1);
  else await expect(found).rejects.toThrow('registry registry.example is closed to images of workspaces: it leads to');
});

test('Docker Hub and registries that the operator named are the engine’s to ask, and others are not', () => {
  const { guard } = guarded({ opened: ['mirror.example:5000', '10.66.7.0/24'] });
  const operators = [
    'python:3.12',
    'docker.io/a/b',
    'Mirror.Example:5000/a',
    'mirror.example/a',
    '10.66.7.7/a',
    'ghcr.io/a',
  ];
  expect(operators.map((image) => guard.isOperators(image))).toEqual([true, true, true, false, false, false]);
});
