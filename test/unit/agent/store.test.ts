// Buckets as s3fs mounts them: what is refused, what is asked of the program, and what its log means.
import { describe, expect, test } from 'vitest';
import { causeOf, daemonArguments, daemonEnvironment, storeProblem } from '#agent/mounts/store.ts';
import type { Store } from '#agent/mounts/store.ts';

const aStore = (more: Partial<Store> = {}): Store => ({
  bucket: 'weights',
  prefix: '',
  endpoint: 'https://s3.example.com/',
  region: 'eu-1',
  pathStyle: false,
  readOnly: false,
  accessKey: 'KEY',
  secretKey: 'HIDDEN',
  ...more,
});
const PLACE = { path: '/run/m/b/ws/1', cacheDir: '/var/cache/m/1', leaveFreeMib: 100, hasCompatDir: true };
const optionsOf = (store: Store): string[] => (daemonArguments(store, PLACE).at(-1) ?? '').split(',');

describe('a bucket', () => {
  test.each<[Partial<Store>, RegExp]>([
    [{ bucket: '' }, /bucket/],
    [{ bucket: '../x' }, /bucket/],
    [{ bucket: 'a..b' }, /bucket/],
    [{ bucket: 'a:/b' }, /bucket/],
    [{ bucket: 'a,allow_root' }, /bucket/],
    [{ bucket: '-o' }, /bucket/],
    [{ endpoint: 'https://s3.example.com,passwd_file=/x' }, /endpoint/],
    [{ endpoint: 'file:///etc' }, /endpoint/],
    [{ endpoint: 'https://a:b@s3.example.com' }, /endpoint/],
    [{ endpoint: 'https://s3.example.com/path' }, /endpoint/],
    [{ endpoint: 'https://s3.example.com\\x' }, /endpoint/],
    [{ region: 'eu,ro' }, /region/],
    [{ prefix: '../other' }, /prefix/],
    [{ prefix: 'a//b' }, /prefix/],
    [{ secretKey: '' }, /belong together/],
    [{ accessKey: 'a\nb' }, /character/],
  ])('%j is refused', (more, says) => {
    expect(storeProblem(aStore(more))).toMatch(says);
  });

  test('keys are in the environment alone, which has nothing of a person', () => {
    expect(storeProblem(aStore())).toBeUndefined();
    expect(JSON.stringify(daemonArguments(aStore(), PLACE))).not.toMatch(/KEY|HIDDEN/);
    const env = daemonEnvironment(aStore(), { home: '/h', caBundle: '/ca.pem', proxy: 'http://mount:x@127.0.0.1:9' });
    expect(env).toMatchObject({
      AWSACCESSKEYID: 'KEY',
      AWSSECRETACCESSKEY: 'HIDDEN',
      HOME: '/h',
      CURL_CA_BUNDLE: '/ca.pem',
    });
    // Every protocol that a redirect may name goes through the guard, and no host is left out.
    for (const name of ['http_proxy', 'https_proxy', 'all_proxy']) expect(env[name]).toBe('http://mount:x@127.0.0.1:9');
    expect(env['no_proxy']).toBe('');
  });

  test('its place and its rights are what was asked for', () => {
    expect(daemonArguments(aStore({ prefix: 'team/ws-1' }), PLACE).slice(0, 3)).toEqual([
      'weights:/team/ws-1',
      PLACE.path,
      '-f',
    ]);
    expect(optionsOf(aStore())).toEqual(
      expect.arrayContaining(['url=https://s3.example.com', 'nosuid', 'nodev', 'endpoint=eu-1']),
    );
    expect(optionsOf(aStore())).not.toContain('ro');
    expect(optionsOf(aStore({ readOnly: true }))).toContain('ro');
    expect(optionsOf(aStore())).not.toContain('use_path_request_style');
    for (const more of [{ pathStyle: true }, { endpoint: 'http://10.0.0.1:9000' }, { bucket: 'a.b' }])
      expect(optionsOf(aStore(more))).toContain('use_path_request_style');
    expect(optionsOf(aStore({ accessKey: '', secretKey: '' }))).toContain('public_bucket=1');
    expect(optionsOf(aStore({ endpoint: '' }))).toContain('url=https://s3.amazonaws.com');
    expect(optionsOf(aStore({ prefix: 'team' }))).toContain('compat_dir');
  });

  test.each([
    ['s3fs_check_service(3590): invalid credentials(host=x)', 'refuses', false],
    ['bucket or key not found(host=x)', 'no such bucket', false],
    [
      'Failed to check bucket and directory for mount point : Bucket or directory() not found(host=x)',
      'no such bucket',
      false,
    ],
    ['unable to connect(host=x)', 'does not answer', true],
    ['### CURLE_PEER_FAILED_VERIFICATION', 'certificate', false],
    ['', 's3fs could not mount', false],
  ])('%j in the log of s3fs is a cause', (log, says, silent) => {
    expect(causeOf(log)).toEqual({ text: expect.stringContaining(says), silent });
  });
});
