import { describe, expect, test } from 'vitest';
import { loadAgentConfig } from '../../../agent/config.ts';
import type { ProxySettings } from '../../../agent/proxy.ts';
import { addressOf, routeTo } from '../../../agent/proxy.ts';

const PROXY = 'http://proxy.example:3128';
const goesBy = (address: string, settings: ProxySettings): string | undefined =>
  routeTo(address, settings).proxy?.shown;

describe('the way to an address', () => {
  test('HTTPS_PROXY comes before HTTP_PROXY, and an empty one counts as none', () => {
    expect(routeTo('host.example:1995', {})).toEqual({ why: 'no proxy is set' });
    expect(goesBy('host.example:1995', { HTTP_PROXY: PROXY })).toBe(PROXY);
    expect(routeTo('host.example:1995', { HTTPS_PROXY: 'http://a:1', HTTP_PROXY: PROXY })).toMatchObject({
      why: 'HTTPS_PROXY',
      proxy: { shown: 'http://a:1', setting: 'HTTPS_PROXY', host: 'a', port: 1 },
    });
    expect(goesBy('host.example:1995', { HTTPS_PROXY: '', HTTP_PROXY: PROXY })).toBe(PROXY);
  });

  test.for([
    'localhost:1',
    'a.localhost:1',
    '127.0.0.1:1995',
    '127.8.9.1:1',
    '[::1]:1995',
    '[0:0::0:1]:5',
    '0.0.0.0:1995',
    '[::]:1',
  ])('never leads through a proxy on this machine: %s', (address) =>
    expect(routeTo(address, { HTTPS_PROXY: PROXY })).toEqual({ why: 'loopback' }),
  );

  test.for([
    ['host.example:1995', '*', true],
    ['host.example:1995', 'other.example, host.example', true],
    ['host.example:1995', 'example', true],
    ['host.example:1995', '.example', true],
    ['host.example:1995', '*.example', true],
    ['host.example:1995', 'HOST.Example.', true],
    ['host.example:1995', 'ost.example', false],
    ['host.example:1995', 'host.example:1995', true],
    ['host.example:1995', 'host.example:443', false],
    ['10.1.2.3:1995', '10.0.0.0/8', true],
    ['10.1.2.3:1995', '10.1.2.3', true],
    ['10.1.2.3:1995', '10.1.2.3:1995', true],
    ['10.1.2.3:1995', '10.1.2.0/31', false],
    ['10.1.2.3:1995', '10.1.2.3/99', false],
    ['10.1.2.3:1995', '.3', false],
    ['host.example:1995', '10.0.0.0/8 fd00::/8', false],
    ['[fd00::1]:1995', 'fd00::/8', true],
    ['[fd00::1]:1995', 'fd00:0:0::1', true],
    ['[fd00::1]:1995', '[fd00::1]:1995', true],
    ['[fd00::1]:1995', '[fd00::1]', true],
    ['[fd00::1]:1995', '[fd00::1]:443', false],
    ['[fd00::1]:1995', 'fe80::/10', false],
  ] as const)('to %s with NO_PROXY=%s is direct: %s', ([address, noProxy, isDirect]) => {
    const way = routeTo(address, { HTTPS_PROXY: PROXY, NO_PROXY: noProxy });
    expect(way.proxy === undefined).toBe(isDirect);
    if (isDirect) expect(way.why).toMatch(/^NO_PROXY has /);
  });

  test('a proxy by name, by IPv6 address, without scheme or port, with a user and a password that are shown nowhere', () => {
    const { proxy } = routeTo('host.example:1', { HTTPS_PROXY: 'http://us%40er:p%3Ass%@[fd00::2]' });
    expect(proxy).toMatchObject({ host: 'fd00::2', port: 80, shown: 'http://[fd00::2]' });
    expect(proxy === undefined ? '' : addressOf(proxy)).toBe('[fd00::2]:80');
    expect(Buffer.from(proxy?.authorization?.slice(6) ?? '', 'base64').toString()).toBe('us@er:p%3Ass%');
    const named = routeTo('host.example:1', { HTTPS_PROXY: 'http://user:p%3Ass@proxy.example:8080/' }).proxy;
    expect(named).toMatchObject({ shown: 'http://proxy.example:8080', authorization: expect.anything() as string });
    expect(Buffer.from(named?.authorization?.slice(6) ?? '', 'base64').toString()).toBe('user:p:ss');
    expect(goesBy('host.example:1', { HTTPS_PROXY: 'proxy.example:3128' })).toBe(PROXY);
  });
});

describe('settings of the agent', () => {
  const env = { LONGSHORE_DATA_DIR: '/x', LONGSHORE_SCHEDULER_ADDRESS: 'host.example:1995' };

  test('take the variables in both cases, and the one in lower case wins', () => {
    const config = loadAgentConfig({ ...env, HTTPS_PROXY: 'http://a:1', https_proxy: PROXY, no_proxy: 'b' });
    expect(config).toMatchObject({ HTTPS_PROXY: PROXY, NO_PROXY: 'b' });
    expect(loadAgentConfig({ ...env, HTTPS_PROXY: 'http://a:1', https_proxy: '' }).HTTPS_PROXY).toBe('http://a:1');
  });

  test.for([
    'socks5://me:geheim@proxy.example:1080',
    'https://me:geheim@proxy.example',
    'http://me:geheim@',
    'http://',
  ])('name a proxy that cannot be used (%s) without its password, and only where it would count', (value) => {
    const start = () => loadAgentConfig({ ...env, HTTPS_PROXY: value });
    expect(start).toThrow(/^HTTPS_PROXY: /);
    expect(start).not.toThrow(/geheim/);
    const here = { ...env, LONGSHORE_SCHEDULER_ADDRESS: '127.0.0.1:1995' };
    expect(loadAgentConfig({ ...here, HTTPS_PROXY: value }).HTTPS_PROXY).toBe(value);
  });
});
