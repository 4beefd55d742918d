import { describe, expect, test } from 'vitest';
import { classifyPull, isTransient } from '#agent/images/failures.ts';
import { digestOf, pathOf, pinnedTo, registryOf, repositoryOf, withTag } from '#shared/domain/image-reference.ts';

describe('what the engine says of a failed pull', () => {
  test.each([
    ['manifest for 127.0.0.1:5000/a:2 not found: manifest unknown: manifest unknown', 'not_found'],
    ['name unknown: repository name not known to registry', 'not_found'],
    ['Get "http://r/v2/a/manifests/1": no basic auth credentials', 'unauthorized'],
    ['unauthorized: authentication required', 'unauthorized'],
    ["pull access denied for a/b, repository does not exist or may require 'docker login'", 'unauthorized'],
    ['denied: requested access to the resource is denied', 'unauthorized'],
    ['invalid reference format: repository name must be lowercase', 'bad_manifest'],
    ['no matching manifest for linux/amd64 in the manifest list entries', 'bad_manifest'],
    ['toomanyrequests: You have reached your pull rate limit', 'busy'],
    ['error parsing HTTP 429 response body: invalid character \'T\' looking for beginning of value: "Too"', 'busy'],
    ['received unexpected HTTP status: 503 Service Unavailable', 'busy'],
    ['error pulling image configuration: download failed after attempts=1: unexpected EOF', 'busy'],
    ['Get "http://r/v2/": dial tcp 10.0.0.1:443: connect: connection refused', 'unreachable'],
    ['Get "https://r/v2/": dial tcp: lookup r on 10.0.0.2:53: no such host', 'unreachable'],
    ['Get "https://r/v2/": dial tcp: lookup r on 10.0.0.2:53: server misbehaving', 'unreachable'],
    ['Get "https://r/v2/": dial tcp: lookup r: Temporary failure in name resolution', 'unreachable'],
    ['Get "https://r/v2/": dial tcp 10.0.0.1:443: connect: no route to host', 'unreachable'],
    ['Get "https://r/v2/": dial tcp 10.0.0.1:443: i/o timeout', 'busy'],
    ['net/http: TLS handshake timeout', 'busy'],
    ['the pull ended before it was complete', 'busy'],
    ['nothing heard for 120 s', 'busy'],
    ['filesystem layer verification failed for digest sha256:00', 'corrupt'],
    ['manifest verification failed for digest sha256:00', 'corrupt'],
    ['failed to register layer: write /data: no space left on device', 'disk_full'],
  ])('%s: %s', (text, failure) => {
    expect(classifyPull(text)).toBe(failure);
  });

  test('only what may pass by itself is tried again', () => {
    expect((['busy', 'unreachable', 'corrupt', 'engine'] as const).every(isTransient)).toBe(true);
    expect((['not_found', 'unauthorized', 'bad_manifest', 'disk_full'] as const).some(isTransient)).toBe(false);
  });
});

describe('a reference', () => {
  const digest = `sha256:${'0'.repeat(64)}`;
  test.each([
    ['python', 'docker.io', 'python', 'python:latest'],
    ['library/python:3.11', 'docker.io', 'library/python', 'library/python:3.11'],
    ['localhost/a', 'localhost', 'localhost/a', 'localhost/a:latest'],
    ['Build/app:1', 'Build', 'Build/app', 'Build/app:1'],
    ['index.docker.io/a/b', 'docker.io', 'index.docker.io/a/b', 'index.docker.io/a/b:latest'],
    ['127.0.0.1:5000/a/b:1', '127.0.0.1:5000', '127.0.0.1:5000/a/b', '127.0.0.1:5000/a/b:1'],
    [`ghcr.io/a/b:1@${digest}`, 'ghcr.io', 'ghcr.io/a/b', `ghcr.io/a/b:1@${digest}`],
  ])('%s is of the registry %s', (reference, registry, repository, tagged) => {
    expect([registryOf(reference), repositoryOf(reference), withTag(reference)]).toEqual([
      registry,
      repository,
      tagged,
    ]);
  });

  test.each([
    ['python:3', 'library/python'],
    ['docker.io/python', 'library/python'],
    ['index.docker.io/a/b', 'a/b'],
    ['a/b:1', 'a/b'],
    ['Build/app', 'app'],
    ['127.0.0.1:5000/a/b:1', 'a/b'],
    [`ghcr.io/a/b:1@${digest}`, 'a/b'],
  ])('%s is the repository %s of its registry', (reference, path) => {
    expect(pathOf(reference)).toBe(path);
  });

  test('is pinned to the bytes that it meant', () => {
    expect(pinnedTo('r:5000/a:1', digest)).toBe(`r:5000/a@${digest}`);
    expect(pinnedTo('a', '')).toBe('a');
    expect(pinnedTo(`a@${digest}`, `sha256:${'1'.repeat(64)}`)).toBe(`a@${digest}`);
    expect([digestOf('a:1'), digestOf(`a@${digest}`)]).toEqual(['', digest]);
  });
});
