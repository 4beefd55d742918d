import { expect, test } from 'vitest';
import { mayTrustLoopback } from '../../../scheduler/api/http/auth.ts';
import { listenPlace } from '../../../scheduler/api/http/listen-policy.ts';

const place = (host: string, isSealed: boolean, plaintext: 'loopback' | 'allow') => {
  const found = listenPlace({ host, port: 1994, isSealed, plaintext });
  return [found.host, found.isNarrowed];
};

test.each(['0.0.0.0', '::', '10.0.0.5', '203.0.113.7', 'gpu.example.org'])(
  'HTTP in clear does not listen on %s',
  (host) => {
    expect(place(host, false, 'loopback')).toEqual(['127.0.0.1', true]);
    expect(place(host, false, 'allow')).toEqual([host, false]);
    expect(place(host, true, 'loopback')).toEqual([host, false]);
  },
);

test.each(['127.0.0.1', '127.3.2.1', '::1', 'localhost'])('HTTP in clear listens on %s', (host) => {
  expect(place(host, false, 'loopback')).toEqual([host, false]);
});

test('a request from loopback is trusted only where no proxy may stand in front', () => {
  expect(mayTrustLoopback({ externalUrl: null })).toBe(true);
  expect(mayTrustLoopback({ externalUrl: null, trustedProxies: [] })).toBe(true);
  expect(mayTrustLoopback({ externalUrl: 'https://gpu.example.org', trustedProxies: [] })).toBe(false);
  expect(mayTrustLoopback({ externalUrl: null, trustedProxies: ['127.0.0.1'] })).toBe(false);
});
