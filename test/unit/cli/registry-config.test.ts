import { expect, test } from 'vitest';
import { addressProblem, registryConfig } from '#cli/up/registry-config.ts';

const PLAIN = { LONGSHORE_DATA_DIR: '/data', LONGSHORE_OBJECTS_REGION: 'us-east-1', LONGSHORE_OBJECTS_PREFIX: '' };

test('the registry keeps files below the data directory, and listens on its socket alone', () => {
  expect(registryConfig(PLAIN, 'unix:///data/registry/registry.sock', 's')).toMatchObject({
    storage: { filesystem: { rootdirectory: '/data/registry/data' }, delete: { enabled: true } },
    http: { net: 'unix', addr: '/data/registry/registry.sock', secret: 's' },
  });
});

test('while layers are collected it takes reads alone', () => {
  const address = 'unix:///data/registry/registry.sock.2';
  expect(registryConfig(PLAIN, address, 's')).toMatchObject({
    storage: { maintenance: { readonly: { enabled: false }, uploadpurging: { enabled: true } } },
  });
  expect(registryConfig(PLAIN, address, 's', 'reads')).toMatchObject({
    storage: { maintenance: { readonly: { enabled: true }, uploadpurging: { enabled: false } } },
    http: { addr: '/data/registry/registry.sock.2' },
  });
});

test('with a bucket the data is there, and machines are never sent to it', () => {
  const settings = {
    ...PLAIN,
    LONGSHORE_OBJECTS_BUCKET: 'b',
    LONGSHORE_OBJECTS_ENDPOINT: 'http://s3.example.com:9000',
    LONGSHORE_OBJECTS_PREFIX: 'team/',
    LONGSHORE_OBJECTS_ACCESS_KEY_ID: 'k',
    LONGSHORE_OBJECTS_SECRET_ACCESS_KEY: 's3cret',
  };
  const config = registryConfig(settings, 'http://127.0.0.1:5000', 's');
  expect(config).toMatchObject({
    storage: {
      s3: {
        bucket: 'b',
        region: 'us-east-1',
        regionendpoint: 'http://s3.example.com:9000',
        secure: false,
        rootdirectory: '/team/registry',
        accesskey: 'k',
        secretkey: 's3cret',
      },
      redirect: { disable: true },
    },
    http: { net: 'tcp', addr: '127.0.0.1:5000' },
  });
  expect(config).not.toHaveProperty('storage.filesystem');
});

test.each([
  'unix:///data/registry.sock',
  'http://127.0.0.1:5000',
  'http://127.3.2.1',
  'http://localhost:1',
  'http://[::1]:5000',
])('it listens at %s', (address) => {
  expect(addressProblem(address)).toBeUndefined();
});

test.each([
  ['http://10.0.0.5:5000', 'could read and replace all images'],
  ['http://0.0.0.0:5000', 'could read and replace all images'],
  ['http://[::]:5000', 'could read and replace all images'],
  ['http://127.0.0.1.example.com:5000', 'could read and replace all images'],
  ['http://user:pass-word@127.0.0.1:5000', 'asks for no user and no password'],
  ['https://127.0.0.1:5000', 'speaks no TLS'],
  ['http://127.0.0.1:0', 'must know the port'],
])('it does not listen at %s', (address, why) => {
  const problem = addressProblem(address);
  expect(problem).toContain(why);
  expect(problem).toContain('LONGSHORE_REGISTRY must name a socket');
  expect(problem).not.toContain('pass-word');
});

test('an address without a port is that of HTTP', () => {
  expect(registryConfig(PLAIN, 'http://127.0.0.1', 's')).toMatchObject({ http: { net: 'tcp', addr: '127.0.0.1:80' } });
});
