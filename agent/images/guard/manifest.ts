/**
 * Reads manifests before the engine gets them. Must stay true: what the engine reads in a manifest is what was read
 * here. Go takes a name of JSON in any case and the last of two, so such names are refused. Pure.
 */
import { isDigest } from '#shared/domain/image-reference.ts';
import { isRecord } from '#shared/json.ts';

/** Docker and containerd read no larger one. */
export const MOST_MANIFEST_BYTES = 4 * 1024 ** 2;
const MOST_CONFIG_BYTES = 4 * 1024 ** 2;
const MOST_PARTS = 1000;

const INDEXES = [
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.oci.image.index.v1+json',
] as const;
const IMAGES = [
  'application/vnd.docker.distribution.manifest.v2+json',
  'application/vnd.oci.image.manifest.v1+json',
] as const;
/** Media types for which a registry is asked. */
export const MANIFEST_TYPES: readonly string[] = [...INDEXES, ...IMAGES];

export type UsableManifest =
  | { readonly kind: 'index'; readonly type: string; readonly manifests: readonly string[] }
  /** `blobs`: sizes of the configuration and of the layers, by digest. */
  | { readonly kind: 'image'; readonly type: string; readonly blobs: ReadonlyMap<string, number> };

export type Manifest = UsableManifest | { readonly kind: 'problem'; readonly why: string };

/** @param type - the media type that the registry gave it */
export function readManifest(bytes: Uint8Array, type: string): Manifest {
  let text: string;
  let read: unknown;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    read = JSON.parse(text);
  } catch {
    return { kind: 'problem', why: 'it is no JSON' };
  }
  if (!isRecord(read)) return { kind: 'problem', why: 'it is no object' };
  const why = namesProblem(read, text);
  if (why !== undefined) return { kind: 'problem', why };
  const { mediaType = type } = read;
  if (mediaType !== type) return { kind: 'problem', why: 'its media type is not that of the answer' };
  if (INDEXES.some((one) => one === type)) return indexOf(read, type);
  if (IMAGES.some((one) => one === type)) return imageOf(read, type);
  return { kind: 'problem', why: 'its media type is not supported' };
}

function indexOf(read: Readonly<Record<string, unknown>>, type: string): Manifest {
  if (read['layers'] !== undefined || read['config'] !== undefined || read['fsLayers'] !== undefined)
    return { kind: 'problem', why: 'it is an index and an image' };
  const list = read['manifests'];
  if (!Array.isArray(list) || list.length > MOST_PARTS) return { kind: 'problem', why: 'its manifests are no list' };
  const found = list.map((one) => descriptorOf(one));
  if (found.includes(undefined)) return { kind: 'problem', why: 'one of its manifests has no digest or size' };
  return { kind: 'index', type, manifests: found.flatMap((one) => (one === undefined ? [] : [one.digest])) };
}

function imageOf(read: Readonly<Record<string, unknown>>, type: string): Manifest {
  if (read['manifests'] !== undefined || read['fsLayers'] !== undefined)
    return { kind: 'problem', why: 'it is an index and an image' };
  const { config, layers } = read;
  if (!Array.isArray(layers) || layers.length > MOST_PARTS) return { kind: 'problem', why: 'its layers are no list' };
  const blobs = new Map<string, number>();
  for (const [at, one] of [config, ...(layers as readonly unknown[])].entries()) {
    const part = descriptorOf(one);
    if (part === undefined) return { kind: 'problem', why: 'one of its layers has no digest or size' };
    if (at === 0 && part.size > MOST_CONFIG_BYTES) return { kind: 'problem', why: 'its configuration is too large' };
    if (blobs.has(part.digest) && blobs.get(part.digest) !== part.size)
      return { kind: 'problem', why: 'it gives a layer two sizes' };
    blobs.set(part.digest, part.size);
  }
  return { kind: 'image', type, blobs };
}

function descriptorOf(value: unknown): { readonly digest: string; readonly size: number } | undefined {
  if (!isRecord(value)) return undefined;
  const { digest, size } = value;
  if (typeof digest !== 'string' || !isDigest(digest)) return undefined;
  return typeof size === 'number' && Number.isSafeInteger(size) && size >= 0 ? { digest, size } : undefined;
}

/** Names that engines know, as they are spelled. */
const KNOWN = new Map(
  [
    'schemaVersion',
    'mediaType',
    'artifactType',
    'config',
    'layers',
    'fsLayers',
    'manifests',
    'blobs',
    'digest',
    'size',
    'urls',
    'data',
    'platform',
    'subject',
    'annotations',
  ].map((name) => [foldOf(name), name] as const),
);

/** Go's `encoding/json` takes these letters for `s` and `k`, too. */
function foldOf(name: string): string {
  return name.toLowerCase().replaceAll('\u017f', 's').replaceAll('\u212a', 'k');
}

/** Names that two readers of JSON take differently, and addresses of layers, which containerd would dial itself. */
function namesProblem(read: unknown, text: string): string | undefined {
  let names = 0;
  const open: unknown[] = [read];
  for (let value = open.pop(); value !== undefined; value = open.pop()) {
    const isList = Array.isArray(value);
    for (const [name, inside] of Object.entries(value as object) as [string, unknown][]) {
      if (typeof inside === 'object' && inside !== null) open.push(inside);
      if (isList) continue;
      names += 1;
      const known = KNOWN.get(foldOf(name));
      if (known !== undefined && known !== name) return 'it spells a name of its format in another way';
      const isEmpty = inside === null || (Array.isArray(inside) && inside.length === 0);
      if (known === 'urls' && !isEmpty) return 'its layers name addresses of their own';
    }
  }
  // A name that comes twice is one for `JSON.parse`. In a text that it took, a string before a colon is a name.
  let written = 0;
  for (const [, colon] of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?/g)) if (colon !== undefined) written += 1;
  return written === names ? undefined : 'it has a name twice';
}
