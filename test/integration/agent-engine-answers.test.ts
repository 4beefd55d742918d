// Questions that engines of several ages answer differently. A server in the place of the engine gives the answers of
// moby 20.10, 28 with images of containerd, and 29.
import { once } from 'node:events';
import { createReadStream, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test as base, vi } from 'vitest';
import type { DockerRuntime } from '../../agent/containers/engine/docker.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import { classifyPull } from '../../agent/images/failures.ts';
import { tempDirectory } from '../helpers/programs.ts';

interface Engine {
  readonly runtime: DockerRuntime;
  /** Answers by the path that is asked for. */
  readonly answers: Record<string, object>;
  readonly asked: string[];
  /** Paths whose answers begin and never end. */
  readonly silent: Set<string>;
  /** Requests whose bodies are not read. */
  readonly held: IncomingMessage[];
}

// oxlint-disable-next-line no-empty-pattern -- vitest reads a fixture's needs from the pattern
const test = base.extend('engine', async ({}, { onCleanup }): Promise<Engine> => {
  const directory = tempDirectory('ans');
  const answers: Engine['answers'] = {};
  const asked: string[] = [];
  const silent = new Set<string>();
  const held: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    const path = (request.url ?? '').split('?')[0] ?? '';
    asked.push(`${request.method} ${path}`);
    const found: { readonly status?: number } = answers[path] ?? { status: 404, message: `no such thing: ${path}` };
    const { status = 200, ...answer } = found;
    response.writeHead(status, { 'content-type': 'application/json' });
    if (!silent.has(path)) response.end(JSON.stringify(answer));
    else {
      held.push(request);
      response.write('{"status":"Importing"}\n');
    }
  });
  const socket = join(directory.path, 'engine.sock');
  server.listen(socket);
  await once(server, 'listening');
  onCleanup(() => {
    server.close();
    directory.remove();
  });
  return { runtime: dockerRuntime(`unix://${socket}`), answers, asked, silent, held };
});

const DIGEST = `sha256:${'d'.repeat(64)}`;
const local = { Id: 'sha256:1', Size: 5 };
const named = { ...local, RepoDigests: [`here/made@${DIGEST}`] };
const containerd = { ...named, Descriptor: { digest: DIGEST } };
const pulled = { Identity: { Pull: [{ Repository: 'docker.io/here/made' }] } };

describe('an image', () => {
  test.for([
    { engine: '20.10, made here', api: '1.41', facts: local, isLocal: true },
    { engine: '20.10, pulled', api: '1.41', facts: named, isLocal: false },
    { engine: '28 with images of containerd, which does not tell', api: '1.51', facts: containerd, isLocal: false },
    { engine: '29, made here', api: '1.53', facts: containerd, isLocal: true },
    { engine: '29, built here', api: '1.55', facts: { ...containerd, Identity: { Build: [{}] } }, isLocal: true },
    { engine: '29, pulled', api: '1.55', facts: { ...containerd, ...pulled }, isLocal: false },
    { engine: '29 with images of its own', api: '1.55', facts: named, isLocal: false },
  ])('is local or of a registry: Docker $engine', async ({ api, facts, isLocal }, { engine }) => {
    engine.answers['/images/here/made/json'] = facts;
    engine.answers['/version'] = { ApiVersion: api };
    expect(await engine.runtime.image('here/made')).toMatchObject({ isLocal, id: 'sha256:1' });
  });
});

test.for([
  { says: 'error from registry: no', status: 403, failure: 'unauthorized' },
  { says: 'error from registry: no', status: 401, failure: 'unauthorized' },
  { says: 'error from registry: slow down', status: 429, failure: 'busy' },
  { says: 'denied: no', status: 500, failure: 'unauthorized' },
])(
  'a refusal of the registry is known by its status, too: $status $says',
  async ({ says, status, failure }, { engine }) => {
    engine.answers['/images/create'] = { status, message: says };
    engine.answers['/distribution/here/made:latest/json'] = { status, message: says };
    const options = {
      auth: undefined,
      silenceMs: 5000,
      signal: AbortSignal.timeout(5000),
      onProgress: () => undefined,
    };
    const failures = [
      engine.runtime.pull('here/made', options),
      engine.runtime.registryDigest('here/made', undefined, 5000),
    ];
    for (const failed of failures)
      expect(
        classifyPull(
          await failed.then(
            () => 'no failure',
            (error: Error) => error.message,
          ),
        ),
      ).toBe(failure);
  },
);

test.for([
  {
    says: 'error parsing HTTP 404 response body: invalid character \'<\' looking for beginning of value: "<h1>s3cret</h1>"',
    told: 'error parsing HTTP 404 response body',
    failure: 'not_found',
  },
  {
    says: 'Head "http://10.0.0.9/v2/?token=s3cret": received unexpected HTTP status: 503 s3cret',
    told: 'unexpected HTTP status: 503',
    failure: 'busy',
  },
  {
    says: 'Get "http://10.0.0.9/v2/": malformed HTTP response "SSH-2.0-s3cret"',
    told: 'malformed',
    failure: 'unknown',
  },
  { says: 'unauthorized: s3cret of a page', told: 'unauthorized', failure: 'unauthorized' },
  { says: 'unknown: s3cret', told: 'unknown', failure: 'unknown' },
  // Docker 29's own class, before a status that it did not expect.
  ...(
    [
      ['429 Too Many Requests', 'busy'],
      ['503 s3cret', 'busy'],
      ['401 Unauthorized', 'unauthorized'],
    ] as const
  ).map(([status, failure]) => ({
    says: `unknown: failed to resolve reference "10.0.0.9/a:1": unexpected status from HEAD request to http://10.0.0.9/v2/a/manifests/1: ${status}`,
    told: status.slice(0, 3),
    failure,
  })),
  { says: 'unknown: failed to resolve s3cret', told: 'unknown', failure: 'unknown' },
])('words of a server that is no registry stay out of errors: $says', async ({ says, told, failure }, { engine }) => {
  engine.answers['/images/create'] = { status: 500, message: says };
  engine.answers['/distribution/here/made:latest/json'] = { status: 500, message: says };
  const options = { auth: undefined, silenceMs: 5000, signal: AbortSignal.timeout(5000), onProgress: () => undefined };
  const messages = await Promise.all(
    [engine.runtime.pull('here/made', options), engine.runtime.registryDigest('here/made', undefined, 5000)].map(
      (failed) =>
        failed.then(
          () => 'no failure',
          (error: Error) => error.message,
        ),
    ),
  );
  for (const message of messages) {
    expect(message).not.toContain('s3cret');
    expect(message).toContain(told);
    expect(classifyPull(message)).toBe(failure);
  }
});

test('an engine with images of containerd is not asked for a limit of a root, which it takes and does not keep', async ({
  engine,
}) => {
  engine.answers['/containers/create'] = { Id: 'c1' };
  engine.answers['/containers/c1'] = {};
  engine.answers['/info'] = { DriverStatus: [['Backing Filesystem', 'xfs']] };
  expect(await engine.runtime.canLimitRoots('image', {})).toBe(true);
  engine.answers['/info'] = { DriverStatus: [['driver-type', 'io.containerd.snapshotter.v1']] };
  engine.asked.length = 0;
  expect(await engine.runtime.canLimitRoots('image', {})).toBe(false);
  expect(engine.asked).toEqual(['GET /info']);
});

test('an import whose answer begins and does not end is given up, and keeps neither its connection nor its file', async ({
  engine,
}) => {
  const directory = tempDirectory('imp');
  onTestFinished(() => directory.remove());
  // The file exceeds the connection's buffers, so the engine has not read all of it.
  const file = join(directory.path, 'image.tar');
  writeFileSync(file, Buffer.alloc(8 * 1024 * 1024));
  const tar = createReadStream(file);
  engine.answers['/images/create'] = {};
  engine.silent.add('/images/create');
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  let failure: unknown;
  void engine.runtime.importImage('some:1', tar).catch((error: unknown) => (failure = error));
  // Turns of the loop that server and client share.
  const until = async (holds: () => boolean): Promise<void> => {
    for (let turns = 0; turns < 100_000 && !holds(); turns += 1) await new Promise(setImmediate);
  };
  await until(() => engine.held.length > 0);
  for (let turns = 0; turns < 100; turns += 1) await new Promise(setImmediate);
  expect(failure).toBeUndefined();
  await vi.advanceTimersByTimeAsync(120_000);
  await until(() => failure !== undefined);
  expect(String(failure)).toContain('did not answer import in 120000 ms');
  expect(tar.destroyed).toBe(true);
  const [request] = engine.held;
  request?.resume();
  await until(() => request?.destroyed === true);
  expect(request).toMatchObject({ destroyed: true, complete: false });
});
