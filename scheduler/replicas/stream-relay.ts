// Streamed calls that cross replicas: the runner process is on a machine linked here, its caller waits at another
// replica. This replica dials that one's HTTP address, and passes the bytes on unread.
// Invariant: a stream is given to the caller of its own task alone, by a credential of that task. Only replicas of this
// installation can make one.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import type { ClientRequest } from 'node:http';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import type { TLSSocket } from 'node:tls';
import { splitAddress } from '#shared/address.ts';
import { sleep } from '#shared/backoff.ts';
import type { InstanceId, TaskId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { passOn } from '#shared/pass-on.ts';

/** The path that a replica dials, with the task's id behind it. */
export const RELAY_PATH = '/~streams/';
/** The protocol that the connection is upgraded to. */
export const RELAY_PROTOCOL = 'longshore-stream';

const DIAL_WITHIN_MS = 5_000;
/** Time after which the kernel asks a silent replica whether it is still there. */
const KEEP_ALIVE_MS = 30_000;
/** Interval of looks at streams that still pass while this replica stops. */
const DRAIN_LOOK_MS = 50;
/** How long a credential is good: clocks of replicas may differ. */
const GOOD_FOR_MS = 60_000;

type Keys = readonly [Uint8Array, ...Uint8Array[]];

export interface StreamRelayParts {
  /** `host:port` of a replica; undefined: it is not present. */
  readonly addressOf: (replica: InstanceId) => Promise<string | undefined>;
  /** Fingerprint (SHA-256) of the certificate that replicas share; undefined: HTTP in clear. */
  readonly fingerprint: (() => string) | undefined;
  /** Keys of all replicas: the first signs, all verify. */
  readonly keys: () => Keys;
  readonly nowMs: () => number;
  readonly log: Log;
}

export class StreamRelay {
  readonly #parts: StreamRelayParts;

  readonly #carried = new Set<Duplex>();

  constructor(parts: StreamRelayParts) {
    this.#parts = parts;
  }

  /** Passes the bytes to the caller's replica. A failure ends them: the caller is answered by the end of its task. */
  carry(replica: InstanceId, taskId: TaskId, bytes: Duplex): void {
    bytes.on('error', () => undefined);
    this.#carried.add(bytes);
    bytes.once('close', () => this.#carried.delete(bytes));
    this.#dial(replica, taskId, bytes).catch((error: unknown) => {
      this.#parts.log.warn({ err: error, taskId, replica }, 'a streamed call could not be passed to its replica');
      bytes.destroy();
    });
  }

  /** Waits until no stream passes here any more, or for that long. */
  async drained(withinMs: number): Promise<void> {
    const untilMs = performance.now() + withinMs;
    while (this.#carried.size > 0 && performance.now() < untilMs) await sleep(DRAIN_LOOK_MS);
  }

  async #dial(replica: InstanceId, taskId: TaskId, bytes: Duplex): Promise<void> {
    const { addressOf, fingerprint, keys, nowMs } = this.#parts;
    const address = await addressOf(replica);
    if (address === undefined) throw new Error('the replica of its caller is not present');
    const at = splitAddress(address);
    const socket = fingerprint === undefined ? connect(at) : connectTls({ ...at, rejectUnauthorized: false });
    socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_MS);
    const timer = setTimeout(() => socket.destroy(new Error('no answer in time')), DIAL_WITHIN_MS);
    try {
      // Nothing is written before: a request that waits for the handshake could leave before the comparison.
      if (fingerprint !== undefined) await verified(socket as TLSSocket, fingerprint());
      const untilMs = nowMs() + GOOD_FOR_MS;
      const request = httpRequest({
        ...at,
        path: `${RELAY_PATH}${taskId}`,
        headers: {
          connection: 'Upgrade',
          upgrade: RELAY_PROTOCOL,
          authorization: `${untilMs}.${signature(keys()[0], taskId, untilMs)}`,
        },
        createConnection: () => socket,
      });
      joinStreams(bytes, await upgraded(request));
    } catch (error) {
      socket.destroy();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Whether a replica may take the stream's place of that task. */
  isGood(taskId: string, credential: string | undefined): boolean {
    const [until = '', given = ''] = (credential ?? '').split('.', 2);
    const untilMs = Number(until);
    const now = this.#parts.nowMs();
    if (!(untilMs > now - GOOD_FOR_MS && untilMs < now + 2 * GOOD_FOR_MS)) return false;
    const bytes = Buffer.from(given, 'base64url');
    return this.#parts.keys().some((key) => {
      const expected = Buffer.from(signature(key, taskId, untilMs), 'base64url');
      return expected.length === bytes.length && timingSafeEqual(expected, bytes);
    });
  }
}

/** Waits for the handshake, and compares the certificate. Replicas share one, for the name of the public address. */
async function verified(socket: TLSSocket, fingerprint: string): Promise<void> {
  await once(socket, 'secureConnect');
  if (socket.getPeerCertificate().fingerprint256 !== fingerprint) throw new Error('it shows another certificate');
}

/** The connection of a request that the other side has taken over. */
function upgraded(request: ClientRequest): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    request.once('upgrade', (_response, socket: Duplex, head: Buffer) => {
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    request.once('response', ({ statusCode }) => reject(new Error(`answered ${statusCode}`)));
    request.once('error', reject);
    request.end();
  });
}

const signature = (key: Uint8Array, taskId: string, untilMs: number): string =>
  createHmac('sha256', key).update(`${taskId} ${untilMs}`).digest('base64url');

/** Passes bytes both ways until both sides have ended; the loss of one side ends the other. */
export function joinStreams(one: Duplex, other: Duplex): void {
  // A side that was lost before tells nobody any more.
  if (one.destroyed || other.destroyed) {
    one.destroy();
    other.destroy();
    return;
  }
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.on('error', () => undefined);
    passOn(from, to);
    from.once('close', () => {
      // Bytes that a side sent before its end are still passed on.
      if (!from.readableEnded) to.destroy();
      else if (!to.writableEnded) to.end();
    });
  }
}
