/**
 * The helper's socket. Must stay true: only the agent's user can enter its directory; a request has a bound, and an
 * answer never holds a key.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { chmod, rm } from 'node:fs/promises';
import type { Static, TSchema } from 'typebox';
import { Value } from 'typebox/value';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { NoAnswer } from '../child.ts';
import { BucketWanted, Holders, VolumeRemoved, VolumeWanted } from '../volumes/mount-messages.ts';
import type { MountFailure } from '../volumes/mount-messages.ts';
import { MountFailed } from './daemon.ts';
import { ClosedAddress } from './guard.ts';
import type { Mounts } from './mounts.ts';

const { createServer } = process.getBuiltinModule('node:http');
/** The largest request names every container of a machine. */
const MOST_BYTES = 4 * 1024 * 1024;
const MOST_CONNECTIONS = 256;

class BadRequest extends Error {}

export async function serveMounts(path: string, mounts: Mounts, log: Log): Promise<() => Promise<void>> {
  const server: Server = createServer((request, response) => void answer(request, response, mounts, log));
  server.maxConnections = MOST_CONNECTIONS;
  server.requestTimeout = 10_000;
  await rm(path, { force: true });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ path }, resolve);
  });
  await chmod(path, 0o600);
  return async () => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
}

async function answer(request: IncomingMessage, response: ServerResponse, mounts: Mounts, log: Log): Promise<void> {
  try {
    const body = await bodyOf(request);
    send(response, 200, await handle(request.url ?? '', body, mounts));
  } catch (error) {
    const isKnown = error instanceof MountFailed || error instanceof ClosedAddress || error instanceof NoAnswer;
    if (!isKnown && !(error instanceof BadRequest)) log.warn({ err: error, path: request.url }, 'a request failed');
    const silent = error instanceof NoAnswer || (error instanceof MountFailed && error.silent);
    send(response, error instanceof BadRequest ? 400 : 422, {
      message: messageOf(error),
      silent,
    } satisfies MountFailure);
  }
}

async function handle(path: string, body: unknown, mounts: Mounts): Promise<object> {
  switch (path) {
    case '/bucket':
      return { path: await mounts.bucket(checked(BucketWanted, body)) };
    case '/volume':
      return { path: await mounts.volume(checked(VolumeWanted, body)) };
    case '/remove':
      await mounts.remove(checked(VolumeRemoved, body));
      return {};
    case '/probe':
      await mounts.probe();
      return {};
    case '/state':
      return mounts.state;
    case '/sync':
      return mounts.sync(checked(Holders, body).holders);
    default:
      throw new BadRequest(`there is no request ${path}`);
  }
}

function checked<T extends TSchema>(schema: T, value: unknown): Static<T> {
  // The value itself may hold keys, so that no error shows it.
  if (!Value.Check(schema, value))
    throw new BadRequest(
      `the request is not as the helper knows it: ${[...Value.Errors(schema, value)][0]?.instancePath ?? ''}`,
    );
  return value;
}

async function bodyOf(request: IncomingMessage): Promise<unknown> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > MOST_BYTES) throw new BadRequest('the request is too large');
    parts.push(part);
  }
  try {
    return JSON.parse(Buffer.concat(parts).toString('utf8')) as unknown;
  } catch {
    throw new BadRequest('the request is not JSON');
  }
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
