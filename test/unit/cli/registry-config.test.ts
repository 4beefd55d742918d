import { expect, test } from 'vitest';
import { registryConfig } from '#cli/up/registry-config.ts';

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
