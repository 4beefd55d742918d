import { expect, test } from 'vitest';
import { caFileOf } from '#cli/up/installation.ts';

const URL_OF = 'https://127.0.0.1:1994';

test('a start that serves HTTPS keeps a CA file with its context: what it was told, what the context had, its own certificate', () => {
  const stored = { caFile: '/etc/ca.pem' };
  const env = { LONGSHORE_CA_BUNDLE: '/etc/bundle.pem', LONGSHORE_HTTP_TLS_CERT: '/etc/cert.pem' };
  expect(caFileOf(URL_OF, env, stored)).toEqual({ caFile: '/etc/bundle.pem' });
  expect(caFileOf(URL_OF, { ...env, LONGSHORE_CA_BUNDLE: '' }, stored)).toEqual(stored);
  expect(caFileOf(URL_OF, { LONGSHORE_HTTP_TLS_CERT: '/etc/cert.pem' })).toEqual({ caFile: '/etc/cert.pem' });
  expect(caFileOf(URL_OF, {})).toEqual({});
  expect(caFileOf('http://127.0.0.1:1994', env, stored)).toEqual({});
});
