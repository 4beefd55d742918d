/**
 * Image registries for tests. `FakeRegistry` serves small images that it makes up,
 * over the real protocol, breaks the protocol where a test says so, and counts
 * requests. `realRegistry` is the packaged docker-registry with a log of its requests.
 */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { findProgram, freePort, missingService, startProgram, tempDirectory, waitFor } from './programs.ts';

/** Registries of tests are at addresses of this machine: `LONGSHORE_AGENT_REGISTRIES` of their agents. */
export const TEST_REGISTRIES = '127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,198.18.0.0/15';
const MANIFEST = 'application/vnd.docker.distribution.manifest.v2+json';
const INDEX = 'application/vnd.docker.distribution.manifest.list.v2+json';
const BLOCK = 512;

export const sha256 = (bytes: Buffer | string): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

interface Blob {
  readonly type: string;
  readonly bytes: Buffer;
}

/** A fault that the registry shows instead of a proper answer; returns false for a proper answer. */
export type Fault = (request: {
  readonly kind: 'manifest' | 'blob' | 'ping';
  readonly url: string;
  readonly authorization: string | undefined;
  readonly bytes: Buffer;
  readonly response: ServerResponse;
}) => boolean;

export class FakeRegistry {
  /** `manifest name:tag`, `blob sha256:…`, in order. */
  readonly asked: string[] = [];
  fault: Fault = () => false;
  /** `user:password` that the registry requires; empty: none. */
  credentials = '';
  #server: Server | undefined;
  #host = '';
  readonly #manifests = new Map<string, Blob>();
  readonly #blobs = new Map<string, Blob>();

  async start(host: string): Promise<void> {
    this.#server = createServer((request, response) => this.#answer(request, response));
    this.#server.listen(0, host);
    await once(this.#server, 'listening');
    this.#host = `${host}:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server?.closeAllConnections();
    this.#server?.close();
  }

  get host(): string {
    return this.#host;
  }

  /** An image of one layer with that many bytes that do not compress. @returns its reference and digest */
  add(name: string, layerBytes = 1000): { readonly reference: string; readonly digest: string } {
    const tar = tarOf('data', randomBytes(layerBytes));
    const layer = gzipSync(tar, { level: 0 });
    const config = Buffer.from(
      JSON.stringify({
        architecture: 'amd64',
        os: 'linux',
        config: { Cmd: ['/data'] },
        rootfs: { type: 'layers', diff_ids: [sha256(tar)] },
      }),
    );
    const about = (bytes: Buffer, mediaType: string) => ({ mediaType, size: bytes.length, digest: sha256(bytes) });
    const manifest = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: MANIFEST,
        config: about(config, 'application/vnd.docker.container.image.v1+json'),
        layers: [about(layer, 'application/vnd.docker.image.rootfs.diff.tar.gzip')],
      }),
    );
    for (const bytes of [config, layer]) this.#blobs.set(sha256(bytes), { type: 'application/octet-stream', bytes });
    const digest = sha256(manifest);
    for (const key of [`${name}:1`, `${name}:${digest}`]) this.#manifests.set(key, { type: MANIFEST, bytes: manifest });
    return { reference: `${this.#host}/${name}:1`, digest };
  }

  /** An index with an image for this machine's architecture, and one that the registry does not have. */
  addIndex(name: string): { readonly reference: string; readonly digest: string } {
    const { digest } = this.add(name);
    const size = this.#manifests.get(`${name}:${digest}`)?.bytes.length;
    const about = (to: string, architecture: string) => ({
      mediaType: MANIFEST,
      digest: to,
      size,
      platform: { os: 'linux', architecture },
    });
    const manifests = [about(sha256('elsewhere'), 's390x'), about(digest, 'amd64')];
    const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: INDEX, manifests }));
    for (const key of [`${name}:1`, `${name}:${sha256(bytes)}`]) this.#manifests.set(key, { type: INDEX, bytes });
    return { reference: `${this.#host}/${name}:1`, digest: sha256(bytes) };
  }

  /** Bytes of a blob. */
  blob(digest: string): Buffer | undefined {
    return this.#blobs.get(digest)?.bytes;
  }

  count(kind: 'manifest' | 'blob'): number {
    return this.asked.filter((one) => one.startsWith(kind)).length;
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const url = request.url ?? '';
    const { authorization } = request.headers;
    const wanted = `Basic ${Buffer.from(this.credentials).toString('base64')}`;
    if (this.credentials !== '' && authorization !== wanted) {
      response.writeHead(401, { 'www-authenticate': 'Basic realm="test"', 'content-type': 'application/json' });
      response.end(JSON.stringify({ errors: [{ code: 'UNAUTHORIZED', message: 'authentication required' }] }));
      return;
    }
    const [, name = '', kind = '', what = ''] = /^\/v2\/(.+)\/(manifests|blobs)\/([^/]+)$/.exec(url) ?? [];
    if (name === '') {
      if (!this.fault({ kind: 'ping', url, authorization, bytes: Buffer.alloc(0), response }))
        response.writeHead(200, { 'docker-distribution-api-version': 'registry/2.0' }).end('{}');
      return;
    }
    const isManifest = kind === 'manifests';
    if (request.method === 'GET') this.asked.push(isManifest ? `manifest ${name}:${what}` : `blob ${what}`);
    const found = isManifest ? this.#manifests.get(`${name}:${what}`) : this.#blobs.get(what);
    const bytes = found?.bytes ?? Buffer.alloc(0);
    if (this.fault({ kind: isManifest ? 'manifest' : 'blob', url, authorization, bytes, response })) return;
    if (found === undefined) {
      response.writeHead(404, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ errors: [{ code: 'MANIFEST_UNKNOWN', message: 'manifest unknown' }] }));
      return;
    }
    const headers = {
      'content-type': found.type,
      'content-length': found.bytes.length,
      'docker-content-digest': sha256(found.bytes),
    };
    response.writeHead(200, headers).end(request.method === 'HEAD' ? undefined : found.bytes);
  }
}

/** A tar archive of one file. */
function tarOf(name: string, bytes: Buffer): Buffer {
  const header = Buffer.alloc(BLOCK);
  header.write(name, 0);
  header.write('0000644\0', 100);
  header.write('0000000\0', 108);
  header.write('0000000\0', 116);
  header.write(`${bytes.length.toString(8).padStart(11, '0')}\0`, 124);
  header.write('00000000000\0', 136);
  header.write('        ', 148);
  header.write('0', 156);
  header.write('ustar\0' + '00', 257);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  const padding = Buffer.alloc((BLOCK - (bytes.length % BLOCK)) % BLOCK);
  return Buffer.concat([header, bytes, padding, Buffer.alloc(2 * BLOCK)]);
}

export const REGISTRY_USER = 'farm';
export const REGISTRY_PASSWORD = 's3cret-of-the-farm';
/** bcrypt hash of REGISTRY_PASSWORD. */
const HTPASSWD = `${REGISTRY_USER}:$2b$04$oajxPEFi0VKe.az.pzE10.SsNXhZ8EAJfXRTSNtPK1pRmI2DUJS5W\n`;

export interface RealRegistry {
  readonly host: string;
  /** GET requests of blobs and manifests, as its log has them. */
  readonly requests: () => readonly string[];
  readonly stop: () => Promise<void>;
}

/**
 * The packaged registry.
 * @param storage - a directory; two registries may share one
 * @param options.password - only `REGISTRY_USER` with `REGISTRY_PASSWORD` may read and write
 */
export async function realRegistry(
  storage: string,
  options: { readonly host?: string; readonly password?: boolean } = {},
): Promise<RealRegistry> {
  const program = findProgram('docker-registry');
  if (program === undefined) throw missingService('docker-registry');
  const directory = tempDirectory('registry');
  const host = `${options.host ?? '127.0.0.1'}:${await freePort()}`;
  writeFileSync(join(directory.path, 'htpasswd'), HTPASSWD);
  const settings = {
    version: 0.1,
    log: { level: 'info', accesslog: { disabled: false } },
    storage: { filesystem: { rootdirectory: storage } },
    http: { addr: host },
    ...(options.password === true
      ? { auth: { htpasswd: { realm: 'test', path: join(directory.path, 'htpasswd') } } }
      : {}),
  };
  const file = join(directory.path, 'registry.yml');
  // JSON is YAML.
  writeFileSync(file, JSON.stringify(settings));
  // The log is a file, so that a count covers all of it.
  const logPath = join(directory.path, 'log');
  const child = await startProgram('sh', ['-c', 'exec "$0" serve "$1" >"$2" 2>&1', program, file, logPath]);
  const output = (): string => readFileSync(logPath, 'utf8');
  await waitFor(
    async () => {
      if (!child.isRunning()) throw new Error(`docker-registry ended: ${output()}`);
      return fetch(`http://${host}/v2/`).then(
        () => true,
        () => false,
      );
    },
    'the registry answers',
    10_000,
  );
  return {
    host,
    requests: () =>
      [...output().matchAll(/"(GET \/v2\/\S+\/(?:blobs|manifests)\/\S+) HTTP/g)].map(([, one = '']) => one),
    stop: async () => {
      await child.end();
      directory.remove();
    },
  };
}
