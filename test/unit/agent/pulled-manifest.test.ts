// Manifests of registries that a tenant chose. The engine reads the same bytes with other programs, so a manifest that
// two programs could read differently is refused.
import { expect, test } from 'vitest';
import { readManifest } from '#agent/images/guard/manifest.ts';

const [ONE, TWO, THREE] = ['1', '2', '3'].map((digit) => `sha256:${digit.repeat(64)}`) as [string, string, string];
const DOCKER = 'application/vnd.docker.distribution.manifest.v2+json';
const OCI = 'application/vnd.oci.image.manifest.v1+json';
const INDEX = 'application/vnd.oci.image.index.v1+json';

const read = (value: unknown, type = DOCKER) =>
  readManifest(Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)), type);
const part = (digest: string, size: unknown, more: object = {}) => ({ mediaType: 'x/y', digest, size, ...more });
const image = (layers: unknown, more: object = {}) => ({ schemaVersion: 2, config: part(ONE, 10), layers, ...more });

test('an image lists the sizes of its blobs, each once, and an index its manifests', () => {
  const layers = [part(TWO, 20, { annotations: { note: 'a: "b"' } }), part(TWO, 20), part(THREE, 0)];
  const blobs = new Map([
    [ONE, 10],
    [TWO, 20],
    [THREE, 0],
  ]);
  expect(read(image(layers, { mediaType: DOCKER }))).toEqual({ kind: 'image', type: DOCKER, blobs });
  expect(read(image(layers), OCI)).toEqual({ kind: 'image', type: OCI, blobs });
  const index = { schemaVersion: 2, manifests: [part(ONE, 1, { platform: { os: 'linux', 'os.version': '1' } })] };
  expect(read(index, INDEX)).toEqual({ kind: 'index', type: INDEX, manifests: [ONE] });
});

const text = (layers: string): string => `{"schemaVersion":2,"config":{"digest":"${ONE}","size":1},"layers":${layers}}`;

test.for([
  ['no JSON', '{', DOCKER],
  ['bytes that are no UTF-8', Buffer.from([0x22, 0xff, 0x22]).toString('latin1') + '\u0000', DOCKER],
  ['a list', [], DOCKER],
  ['the type of another answer', image([], { mediaType: OCI }), DOCKER],
  ['the first schema', { schemaVersion: 1, fsLayers: [], history: [] }, 'application/json'],
  ['an image and an index at once', image([], { manifests: [] }), DOCKER],
  ['an index and an image at once', { manifests: [], config: part(ONE, 1) }, INDEX],
  ['layers that are no list', image({}), DOCKER],
  ['a layer without a size', image([{ digest: TWO }]), DOCKER],
  ['a size below zero', image([part(TWO, -1)]), DOCKER],
  ['a size with a fraction', image([part(TWO, 0.5)]), DOCKER],
  ['a size as a text', image([part(TWO, '1')]), DOCKER],
  ['a size beyond whole numbers', text(`[{"digest":"${TWO}","size":9007199254740993}]`), DOCKER],
  ['another algorithm', image([part(`sha512:${'1'.repeat(128)}`, 1)]), DOCKER],
  ['two sizes of one layer', image([part(TWO, 1), part(TWO, 2)]), DOCKER],
  ['too many layers', image(Array.from({ length: 1001 }, () => part(TWO, 1))), DOCKER],
  ['a configuration of 5 MiB', { schemaVersion: 2, config: part(ONE, 5 * 1024 ** 2), layers: [] }, DOCKER],
  ['addresses of a layer', image([part(TWO, 1, { urls: ['http://169.254.169.254/'] })]), DOCKER],
  ['addresses in other letters', image([part(TWO, 1, { URLs: ['http://169.254.169.254/'] })]), DOCKER],
  ['addresses with the letter ſ', image([part(TWO, 1, { urlſ: ['http://169.254.169.254/'] })]), DOCKER],
  ['layers in other letters', image([], { Layers: [part(TWO, 1)] }), DOCKER],
  ['layers twice', text(`[],"layers":[{"digest":"${TWO}","size":1}]`), DOCKER],
  ['a size twice', text(`[{"digest":"${TWO}","size":1,"size":2}]`), DOCKER],
  ['a name twice, once with an escape', text(`[{"digest":"${TWO}","size":1,"si\\u007ae":2}]`), DOCKER],
] as const)('a manifest is refused: %s', ([, value, type]) => {
  expect(read(value, type)).toMatchObject({ kind: 'problem' });
});
