import { describe, expect, test } from 'vitest';
import { permits, readRequest } from '#scheduler/fleet/registry/requests.ts';
import type { RegistryRight } from '#scheduler/fleet/registry/requests.ts';
import { tokenIn } from '#scheduler/fleet/registry/tokens.ts';

const REPOSITORY = 'longshore-built/0f8fad5b-d9cb-469f-a165-70867728950e';
const OTHER = 'longshore-built/7c9e6679-7425-40de-944b-e07fc1f90ae7';
const DIGEST = `sha256:${'a'.repeat(64)}`;
const TAG = 'b'.repeat(32);
const pull: RegistryRight = { action: 'pull', repository: REPOSITORY, reference: DIGEST };
const push: RegistryRight = { action: 'push', repository: REPOSITORY, reference: TAG };

const may = (right: RegistryRight, method: string, path: string): boolean => {
  const wanted = readRequest(method, path);
  return wanted !== undefined && wanted.kind !== 'ping' && permits(right, wanted);
};

describe('a token for a pull', () => {
  test.each([
    ['GET', `/v2/${REPOSITORY}/manifests/${DIGEST}`, true],
    ['HEAD', `/v2/${REPOSITORY}/blobs/${DIGEST}`, true],
    ['GET', `/v2/${OTHER}/blobs/${DIGEST}`, false],
    ['GET', `/v2/${REPOSITORY}/manifests/sha256:${'c'.repeat(64)}`, false],
    ['GET', `/v2/${REPOSITORY}/manifests/${TAG}`, false],
    ['PUT', `/v2/${REPOSITORY}/manifests/${DIGEST}`, false],
    ['POST', `/v2/${REPOSITORY}/blobs/uploads/`, false],
    ['DELETE', `/v2/${REPOSITORY}/manifests/${DIGEST}`, false],
    ['GET', `/v2/${REPOSITORY}/tags/list`, false],
    ['GET', '/v2/_catalog', false],
  ])('%s %s: %s', (method, path, expected) => {
    expect(may(pull, method, path)).toBe(expected);
  });
});

describe('a token for a push', () => {
  test.each([
    ['POST', `/v2/${REPOSITORY}/blobs/uploads/`, true],
    ['PATCH', `/v2/${REPOSITORY}/blobs/uploads/uuid-1?_state=x`, true],
    ['PUT', `/v2/${REPOSITORY}/blobs/uploads/uuid-1?_state=x&digest=${DIGEST}`, true],
    ['HEAD', `/v2/${REPOSITORY}/blobs/${DIGEST}`, true],
    ['PUT', `/v2/${REPOSITORY}/manifests/${TAG}`, true],
    ['PUT', `/v2/${REPOSITORY}/manifests/${'c'.repeat(32)}`, false],
    ['PUT', `/v2/${REPOSITORY}/manifests/${DIGEST}`, false],
    ['PUT', `/v2/${REPOSITORY}/blobs/uploads/uuid-1?digest=sha512:${'a'.repeat(128)}`, false],
    ['PUT', `/v2/${OTHER}/manifests/${TAG}`, false],
    ['POST', `/v2/${OTHER}/blobs/uploads/`, false],
    ['DELETE', `/v2/${REPOSITORY}/manifests/${DIGEST}`, false],
  ])('%s %s: %s', (method, path, expected) => {
    expect(may(push, method, path)).toBe(expected);
  });
});

test.each([
  `/v2/${REPOSITORY}/../${OTHER.split('/')[1] ?? ''}/blobs/${DIGEST}`,
  `/v2/${REPOSITORY}%2f..%2f/blobs/${DIGEST}`,
  `/v2//${REPOSITORY}/blobs/${DIGEST}`,
  `/v2/${REPOSITORY}/blobs/${DIGEST}/../../manifests/x`,
  `http://elsewhere/v2/${REPOSITORY}/blobs/${DIGEST}`,
  `/v2/other/blobs/${DIGEST}`,
])('a path of another form is nothing: %s', (path) => {
  expect(readRequest('GET', path)).toBeUndefined();
});

test('an upload never takes a layer from another repository', () => {
  const wanted = readRequest('POST', `/v2/${REPOSITORY}/blobs/uploads/?mount=${DIGEST}&from=${OTHER}&digest=x`);
  expect(wanted).toMatchObject({ path: `/v2/${REPOSITORY}/blobs/uploads/` });
});

test('a token comes as the password of Basic', () => {
  expect(tokenIn(`Basic ${Buffer.from('longshore:a.b:c').toString('base64')}`)).toBe('a.b:c');
  for (const header of [undefined, '', 'Basic', 'Bearer x', 'Basic ???']) expect(tokenIn(header)).toBe('');
});
