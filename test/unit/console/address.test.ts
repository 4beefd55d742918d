import { hostname } from 'node:os';
import { fastify } from 'fastify';
import { describe, expect, test } from 'vitest';
import { ConsolePlace } from '#scheduler/api/http/console/address.ts';
import type { PlaceSettings } from '#scheduler/api/http/console/address.ts';
import { keepApart } from '#scheduler/api/http/console/register.ts';
import { originReader } from '#scheduler/api/http/origin.ts';
import { AppError } from '#shared/errors.ts';

const at = (host: string, headers: Readonly<Record<string, string>> = {}, protocol: 'http' | 'https' = 'http') => ({
  host,
  protocol,
  headers,
});
const codeOf = (run: () => void): string => {
  try {
    run();
    return '';
  } catch (error) {
    return error instanceof AppError ? error.code : String(error);
  }
};
const NONE = { consoleUrl: null, externalUrl: null };
const EXTERNAL = { ...NONE, externalUrl: 'https://gpu.example.org/' };
const OWN = { ...EXTERNAL, consoleUrl: 'https://console.example.org' };

describe('the console answers', () => {
  test.each([
    [NONE, '127.0.0.1:1994', ''],
    [NONE, 'localhost:1994', ''],
    [NONE, '[::1]:1994', ''],
    [NONE, '192.0.2.7', ''],
    [NONE, hostname(), ''],
    [NONE, 'rebound.example.org:1994', 'misdirected'],
    [NONE, 'app.localhost:1994', 'misdirected'],
    [NONE, 'localhost@evil.example.org', 'misdirected'],
    [NONE, '127.0.0.1.evil.example.org', 'misdirected'],
    [NONE, '', 'misdirected'],
    [EXTERNAL, 'gpu.example.org', ''],
    [EXTERNAL, 'GPU.example.org:443', ''],
    [EXTERNAL, 'app.gpu.example.org', 'misdirected'],
    [OWN, 'console.example.org', ''],
    [OWN, 'console.example.org:443', ''],
    [OWN, 'gpu.example.org', 'misdirected'],
    [OWN, '127.0.0.1:1994', 'misdirected'],
    [OWN, 'console.example.org:444', 'misdirected'],
  ])('with %j on %j: %j', (settings, host, code) => {
    expect(codeOf(() => new ConsolePlace(settings).mustBeHere(at(host)))).toBe(code);
  });

  test.each([
    [NONE, at('127.0.0.1:1994', { origin: 'http://127.0.0.1:1994', 'sec-fetch-site': 'same-origin' }), ''],
    [NONE, at('127.0.0.1:1994'), ''],
    [NONE, at('127.0.0.1:1994', { origin: 'http://127.0.0.1:1995' }), 'foreign_page'],
    [NONE, at('127.0.0.1:1994', { origin: 'https://127.0.0.1:1994' }), 'foreign_page'],
    [NONE, at('127.0.0.1:1994', { origin: 'null' }), 'foreign_page'],
    [NONE, at('127.0.0.1:1994', { 'sec-fetch-site': 'same-site' }), 'foreign_page'],
    [NONE, at('127.0.0.1:1994', { 'sec-fetch-site': 'cross-site' }), 'foreign_page'],
    [NONE, at('127.0.0.1:1994', { 'sec-fetch-site': 'none' }), 'foreign_page'],
    // A proxy that ends TLS and tells nobody: the configured address is what browsers name.
    [EXTERNAL, at('gpu.example.org', { origin: 'https://gpu.example.org' }), ''],
    [EXTERNAL, at('gpu.example.org', { origin: 'http://gpu.example.org' }), 'foreign_page'],
    [EXTERNAL, at('gpu.example.org', { origin: 'https://app.gpu.example.org' }), 'foreign_page'],
  ])('with %j a request %j: %j', (settings, request, code) => {
    expect(codeOf(() => new ConsolePlace(settings).mustBeOwnPage(request))).toBe(code);
  });
});

test('its cookie is for this host and HTTPS alone, or for the console of a host without HTTPS', () => {
  const place = new ConsolePlace(EXTERNAL);
  expect(place.cookie(at('127.0.0.1:1994'), 'x')).toBe('longshore_console=x; Path=/console; HttpOnly; SameSite=Strict');
  const sealed = '__Host-longshore_console=x; Path=/; Secure; HttpOnly; SameSite=Strict';
  expect(place.cookie(at('gpu.example.org'), 'x')).toBe(sealed);
  expect(place.cookie(at('127.0.0.1:1994', {}, 'https'), 'x')).toBe(sealed);
  expect(place.cookie(at('127.0.0.1:1994'), undefined)).toContain('Max-Age=0');
  expect(['127.0.0.1:1', 'localhost:1', '[::1]:1', '192.0.2.1:1'].map((host) => place.isClear(at(host)))).toEqual([
    false,
    false,
    false,
    true,
  ]);
});

test('an address that is not one of an origin ends the start', () => {
  for (const consoleUrl of ['console.example.org', 'https://a.example.org/console', 'ftp://a', 'https://u:p@a'])
    expect(codeOf(() => new ConsolePlace({ ...NONE, consoleUrl }))).toBe('bad_config');
});

test('on an address of its own nothing else answers, and elsewhere everything as before', async () => {
  const app = fastify();
  app.setErrorHandler((error, _request, reply) => reply.code(421).send(error instanceof AppError ? error.code : ''));
  keepApart(app, { place: new ConsolePlace(OWN) });
  for (const url of ['/', '/console/x', '/consoles', '/asgi/a', '/api/v1/health']) app.get(url, () => 'served');
  const ask = async (url: string, host: string) => (await app.inject({ url, headers: { host } })).body;
  const own = 'console.example.org';
  expect(await Promise.all(['/', '/console/x'].map((url) => ask(url, own)))).toEqual(['served', 'served']);
  for (const url of ['/consoles', '/asgi/a', '/api/v1/health', '/nothing'])
    expect([url, await ask(url, own), await ask(url, 'gpu.example.org')]).toEqual([
      url,
      'misdirected',
      url === '/nothing' ? expect.stringContaining('Not Found') : 'served',
    ]);
  await app.close();
});

test('the name of the console alone is no start of an address that is given out', async () => {
  const baseFor = async (settings: PlaceSettings, host: string): Promise<string> => {
    const app = fastify();
    const place = new ConsolePlace(settings);
    const originOf = originReader({
      externalUrl: settings.externalUrl,
      listenUrl: () => 'http://192.0.2.7:1994',
      scheme: 'http',
      trustsLoopback: false,
      isConsole: (request) => place.isItsOwn(request),
    });
    app.get('/', (request) => originOf(request).baseUrl);
    const { body } = await app.inject({ url: '/', headers: { host } });
    await app.close();
    return body;
  };
  const apart = { ...NONE, consoleUrl: 'https://console.example.org' };
  expect(await baseFor(apart, 'console.example.org')).toBe('http://192.0.2.7:1994');
  expect(await baseFor(apart, 'CONSOLE.example.org:443')).toBe('http://192.0.2.7:1994');
  expect(await baseFor(apart, 'gpu.example.org')).toBe('http://gpu.example.org');
  expect(await baseFor(NONE, 'console.example.org')).toBe('http://console.example.org');
  expect(await baseFor(OWN, 'console.example.org')).toBe('https://gpu.example.org');
});
