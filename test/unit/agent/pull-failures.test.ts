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
    ['failed to register layer: Error processing tar file(exit status 1): input/output error', 'engine'],
    ['failed to register layer: rename /var/lib/docker/a /b: read-only file system', 'engine'],
    ['write /var/lib/docker/tmp/GetImageBlob1: cannot allocate memory', 'engine'],
    ['context canceled', 'engine'],
    ['Get "http://r/v2/": dial tcp 10.0.0.1:443: connect: network is unreachable', 'unreachable'],
    ['Get "https://r/v2/": tls: failed to verify certificate: x509: certificate has expired', 'unreachable'],
  ])('%s: %s', (text, failure) => {
    expect(classifyPull(text)).toBe(failure);
  });

  test.each([
    ['manifest for r/a:1 not found: manifest unknown: no space left on device', 'not_found'],
    ['manifest for r/a:1 not found: manifest unknown: please try again, HTTP 503', 'not_found'],
    ['repository r/a not found: name unknown: input/output error', 'not_found'],
    [
      "pull access denied for r/a, repository does not exist or may require 'docker login': denied: HTTP 503",
      'unauthorized',
    ],
    ['Head "https://r/v2/a/manifests/1": unauthorized: no space left on device', 'unauthorized'],
    ['Get "https://r/v2/no space left on device": denied: toomanyrequests', 'unauthorized'],
    ['errors:\nunknown: no space left on device\ndenied: x\n', 'unknown'],
    ['unknown: context canceled', 'unknown'],
    ['manifest invalid: connection refused', 'bad_manifest'],
    [
      'error parsing HTTP 404 response body: invalid character \'n\' looking: "HTTP 503 no space left on device"',
      'not_found',
    ],
    ['received unexpected HTTP status: 418 no space left on device', 'bad_manifest'],
    ['unexpected status from GET request to https://r/v2/a: 503 no space left on device', 'busy'],
    ['tls: failed to verify certificate: x509: certificate is valid for no space left on device', 'unreachable'],
    ['failed to register layer: open /x: no space left on device/y: file exists', 'unknown'],
    // The text of Docker 20.10 for the answer of a registry that has this type.
    [
      "mediaType in manifest should be 'application/vnd.docker.distribution.manifest.v2+json' not 'x: no space left on device'",
      'bad_manifest',
    ],
    ["if present, mediaType in image index should be 'a' not 'x: input/output error'", 'bad_manifest'],
    [
      'Get "http://r/v2/": net/http: HTTP/1.x transport connection broken: malformed MIME header line: x: no space left on device',
      'unknown',
    ],
  ])("a registry's words change nothing after the engine's own: %s", (text, failure) => {
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
