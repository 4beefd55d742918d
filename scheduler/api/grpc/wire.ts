// The calls as gRPC brings them: metadata is read and judged before the message, then the binder answers. Loaded with
// the first connection.
import { Metadata, Server, ServerCredentials, ServerInterceptingCall } from '@grpc/grpc-js';
import type {
  ConnectionInjector,
  sendUnaryData,
  ServerDuplexStream,
  ServerInterceptor,
  ServerInterceptingCallInterface,
  ServerUnaryCall,
  ServerWritableStream,
} from '@grpc/grpc-js';
import { once } from 'node:events';
import type { Clock } from '#shared/clock.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { RpcCode } from '../http/error-map.ts';
import { RPC_STATUS } from '../http/error-map.ts';
import type { Origin } from '../operations/operation.ts';
import { Binder, MOST_RECEIVED } from './binder.ts';
import type { Admitted, BinderParts, Opened } from './binder.ts';
import { makeCodecs, readMessages } from './descriptor.ts';
import { RememberedAnswers } from './requests.ts';
import type { Rpc } from './rpcs.ts';
import { refusalBytes } from './services/refused.ts';
import type { RefusedCall } from './services/refused.ts';
import { CODES, INVALID_TOKEN, RpcStatus, statusOf, STOPPING } from './statuses.ts';
import { LEFT, LOST, REVOKED, STOPS } from './stream-ends.ts';

/** Bytes of an answer: published clients take no more. */
export const MOST_SENT = 16 * 1024 * 1024;
/** Streams of a connection at once; `.map()` of a published client opens 32. */
const MOST_STREAMS = 128;
/** A client that is gone without a word is noticed by a ping. */
const PING_EVERY_MS = 30_000;
const PONG_WITHIN_MS = 20_000;
/** Time for a message whose bytes are booked: clients give up by then. */
const PIECE_WITHIN_MS = 120_000;
/** A connection is renewed from time to time, so that clients spread over the schedulers. */
const CONNECTION_AGE_MS = 3_600_000;
const AGE_GRACE_MS = 600_000;

const ACKNOWLEDGED = 'x-beta9-request-ack';
const MANY_CONNECTIONS = 'this workspace has too many connections to this scheduler: close some, or share one';

const HEALTH = '/grpc.health.v1.Health/Check';
/** Values of its `status`. */
const SERVING = 1;
const NOT_SERVING = 2;

/** A call as its connection and its metadata describe it. */
export interface CallFacts {
  readonly host: string;
  readonly remoteAddress: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** The connections of calls, by peers as gRPC names them. */
export interface Connections {
  readonly isStopping: () => boolean;
  /**
   * A call of this connection has shown a good token of that workspace.
   * @returns false: the workspace has too many connections
   */
  readonly known: (peer: string, workspaceId: WorkspaceId) => boolean;
  readonly isConnected: (peer: string) => boolean;
}

export interface WireParts extends Omit<BinderParts, 'codecs' | 'messages' | 'answers'>, Connections {
  readonly rpcs: readonly Rpc[];
  readonly originOf: (facts: CallFacts) => Origin;
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>;
  readonly log: Log;
  readonly pieceWithinMs?: number;
}

/** Status of a stream that its signal ended. */
const endedBy = ({ reason }: AbortSignal): RpcStatus =>
  reason === REVOKED ? new RpcStatus(CODES.unauthenticated, INVALID_TOKEN) : new RpcStatus(CODES.unavailable, STOPPING);

type Unary = ServerUnaryCall<Buffer, Buffer>;
type Streamed = ServerWritableStream<Buffer, Buffer>;
type Duplexed = ServerDuplexStream<Buffer, Buffer>;

/** Makes the messages of an answer. @param revoked - called when the token counts no more */
type Serving = (opened: AdmittedCall, signal: AbortSignal, revoked: () => void) => AsyncIterable<Buffer>;

type AdmittedCall = Opened & Pick<Admitted, 'begun'> & { readonly pace?: Pace };

const NO_BYTES = Buffer.alloc(0);
const TOO_SLOW = { code: CODES.deadline_exceeded, details: 'the message did not come in time', metadata: null };
const asBytes = (bytes: Buffer): Buffer => bytes;

/** Lets a message of a call pass once its reader asks for it: by itself, the call's stream keeps sixteen of them. */
class Pace {
  #isAsked = false;
  #held: (() => void) | undefined;

  /** A message came. @param pass - hands it to the stream */
  came(pass: () => void): void {
    if (this.#isAsked) {
      this.#isAsked = false;
      pass();
    } else this.#held = pass;
  }

  /** The reader asks for a message. */
  asked(): void {
    const pass = this.#held;
    this.#held = undefined;
    if (pass === undefined) this.#isAsked = true;
    else pass();
  }
}

const pacedBy = (pace: Pace | undefined, messages: AsyncIterator<Buffer>): AsyncIterable<Buffer> => ({
  [Symbol.asyncIterator]: () => ({
    next: () => {
      pace?.asked();
      return messages.next();
    },
  }),
});

export class Wire {
  readonly #parts: WireParts;
  readonly #server: Server;
  readonly #injector: ConnectionInjector;
  readonly #binder: Binder;
  readonly #rpcs: ReadonlyMap<string, Rpc>;
  readonly #opened = new WeakMap<Metadata, AdmittedCall>();
  /** Calls in progress. */
  readonly #running = new Set<object>();
  readonly #pieceWithinMs: number;
  readonly #stopping = new AbortController();
  readonly #ending = new AbortController();

  constructor(parts: WireParts) {
    this.#parts = parts;
    this.#pieceWithinMs = parts.pieceWithinMs ?? PIECE_WITHIN_MS;
    this.#rpcs = new Map(parts.rpcs.map((rpc) => [rpc.path, rpc]));
    const messages = readMessages();
    const codecs = makeCodecs(messages);
    this.#binder = new Binder({ ...parts, messages, codecs, answers: new RememberedAnswers(parts.clock) });
    this.#server = new Server({
      interceptors: [this.#admission],
      'grpc.max_receive_message_length': MOST_RECEIVED,
      'grpc.max_send_message_length': MOST_SENT,
      'grpc.max_concurrent_streams': MOST_STREAMS,
      'grpc.keepalive_time_ms': PING_EVERY_MS,
      'grpc.keepalive_timeout_ms': PONG_WITHIN_MS,
      'grpc.max_connection_age_ms': CONNECTION_AGE_MS,
      'grpc.max_connection_age_grace_ms': AGE_GRACE_MS,
      'grpc.enable_channelz': 0,
    });
    for (const rpc of parts.rpcs) {
      if (rpc.refused !== undefined) this.#registerRefused(rpc.refused);
      else if (rpc.duplex !== undefined) this.#register(rpc.path, 'bidi', this.#duplexed);
      else if (rpc.stream === undefined) this.#register(rpc.path, 'unary', this.#unary);
      else this.#register(rpc.path, 'serverStream', this.#streamed);
    }
    this.#register(HEALTH, 'unary', (call: Unary, done: sendUnaryData<Buffer>) => {
      const { service } = codecs.decode('health.CheckRequest', call.request);
      if (service !== '' && !parts.rpcs.some(({ path }) => path.startsWith(`/${String(service)}/`)))
        return done({ code: CODES.not_found, details: 'no such service' });
      const status = parts.isStopping() ? NOT_SERVING : SERVING;
      done(null, codecs.encode('health.CheckResponse', { status }));
    });
    this.#injector = this.#server.createConnectionInjector(ServerCredentials.createInsecure());
  }

  get injector(): ConnectionInjector {
    return this.#injector;
  }

  /** The number of calls in progress. */
  get running(): number {
    return this.#running.size;
  }

  /** Ends streams whose clients come back to them, at another scheduler. */
  endComingBack(): void {
    this.#stopping.abort(STOPS);
  }

  /** Ends streams, so that their clients call another scheduler. */
  endStreams(): void {
    this.#ending.abort(STOPS);
  }

  /** Ends every connection at once. */
  close(): void {
    this.#server.forceShutdown();
  }

  #register(
    path: string,
    type: 'unary' | 'clientStream',
    handler: (call: Unary, done: sendUnaryData<Buffer>) => void,
  ): void;
  #register(path: string, type: 'serverStream', handler: (call: Streamed) => void): void;
  #register(path: string, type: 'bidi', handler: (call: Duplexed) => void): void;
  #register(path: string, type: string, handler: (call: never, done: never) => void): void {
    this.#server.register(path, handler as Parameters<Server['register']>[1] as never, asBytes, asBytes, type);
  }

  /** Answers a call that is refused, whatever its messages are. */
  #registerRefused(refused: RefusedCall): void {
    const bytes = refusalBytes(refused);
    const { path, type } = refused;
    if (type === 'serverStream') {
      this.#register(path, type, (call: Streamed) => {
        this.#take(call);
        call.write(bytes);
        call.end();
      });
      return;
    }
    this.#register(path, type, (call: Unary, done: sendUnaryData<Buffer>) => {
      this.#take(call);
      done(null, bytes);
    });
  }

  /** Judges a call by its metadata. Its message is read afterwards. */
  readonly #admission: ServerInterceptor = ({ path }, call) => {
    const rpc = this.#rpcs.get(path);
    if (rpc === undefined) return new ServerInterceptingCall(call);
    let opened: Opened | undefined;
    let isOver = false;
    let leave = (): void => undefined;
    let late: NodeJS.Timeout | undefined;
    let pace: Pace | undefined;
    const over = (code: number): void => {
      if (isOver) return;
      isOver = true;
      clearTimeout(late);
      leave();
      if (opened === undefined) return;
      this.#running.delete(opened);
      const { from } = opened.origin;
      const status = code === 0 ? 200 : (RPC_STATUS[code as RpcCode] ?? 500);
      this.#parts.calls.ended(opened, () => ({
        from,
        method: 'POST',
        path,
        status,
        contentType: 'application/grpc',
        accept: '',
      }));
    };
    const intercepted = new ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMetadata: (metadata, go) => {
            const refuse = (error: unknown): void => {
              const { code, details, isOurs } = statusOf(error);
              if (isOurs) this.#parts.log.error({ err: error, path }, 'a call cannot be admitted');
              call.sendStatus({ code, details, metadata: null });
            };
            if (this.#parts.isStopping()) return refuse(new RpcStatus(CODES.unavailable, STOPPING));
            const begun = this.#openedOf(rpc, call, metadata);
            this.#binder.admit(begun).then((admitted) => {
              const { workspaceId } = admitted;
              ({ leave } = admitted);
              if (isOver) return leave();
              if (workspaceId !== null && !this.#parts.known(call.getPeer(), workspaceId)) {
                leave();
                return refuse(new RpcStatus(CODES.resource_exhausted, MANY_CONNECTIONS));
              }
              if (rpc.duplex !== undefined) pace = new Pace();
              const going = { ...begun, begun: admitted.begun, ...(pace === undefined ? {} : { pace }) };
              opened = going;
              this.#opened.set(metadata, going);
              this.#running.add(going);
              // The status passes by `over`, which gives the booked bytes back.
              if (rpc.isLarge === true) late = setTimeout(() => intercepted.sendStatus(TOO_SLOW), this.#pieceWithinMs);
              go(metadata);
            }, refuse);
          },
          onReceiveMessage: (message, go) => {
            clearTimeout(late);
            if (pace === undefined) go(message);
            else pace.came(() => go(message));
          },
          onCancel: () => over(CODES.cancelled),
        }),
      sendStatus: (status, next) => {
        over(status.code);
        next(status);
      },
    });
    return intercepted;
  };

  #openedOf(rpc: Rpc, call: ServerInterceptingCallInterface, metadata: Metadata): Opened {
    // Only names that end with -bin have bytes, and nothing here reads those.
    const headers = metadata.getMap() as Readonly<Record<string, string>>;
    const { remoteAddress = '' } = call.getConnectionInfo();
    return {
      rpc,
      origin: this.#parts.originOf({ host: call.getHost() ?? '', remoteAddress, headers }),
      headers,
      requestId: headers['x-beta9-request-id'] ?? '',
      // Headers of one name come as one, with commas between the values.
      acknowledged:
        headers[ACKNOWLEDGED] === undefined
          ? []
          : metadata.get(ACKNOWLEDGED).flatMap((ids) => String(ids).split(/, ?/)),
    };
  }

  readonly #unary = (call: Unary, done: sendUnaryData<Buffer>): void => void this.#answer(call, done);

  async #answer(call: Unary, done: sendUnaryData<Buffer>): Promise<void> {
    const opened = this.#openedBy(call);
    const deadlineMs = Number(call.getDeadline()) - this.#parts.clock.nowMs();
    let bytes: Buffer;
    try {
      bytes = await this.#binder.answer(opened, call.request, deadlineMs);
    } catch (error) {
      this.#begin(call, opened);
      return done(this.#failed(opened, error));
    }
    // Sent with the answer, and not before it: a packet costs more than all that is in it.
    this.#begin(call, opened);
    done(null, bytes);
  }

  readonly #streamed = (call: Streamed): void => {
    const take = (): Buffer => {
      const { request } = call;
      call.request = NO_BYTES;
      return request;
    };
    this.#serve(call, (opened, ...rest) => this.#binder.stream(opened, take, ...rest));
  };

  readonly #duplexed = (call: Duplexed): void => {
    const messages = call.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
    this.#serve(call, (opened, ...rest) => this.#binder.duplex(opened, pacedBy(opened.pace, messages), ...rest));
  };

  /** Sends the messages of an answer as they come, at the caller's pace. */
  #serve(call: Duplexed | Streamed, messagesOf: Serving): void {
    const opened = this.#take(call);
    const gone = new AbortController();
    // A call that has ended does not know its connection any more.
    const peer = call.getPeer();
    call.once('cancelled', () => gone.abort(this.#parts.isConnected(peer) ? LEFT : LOST));
    const comingBack = opened.rpc.comesBack === true ? [this.#stopping.signal] : [];
    const signal = AbortSignal.any([gone.signal, this.#ending.signal, ...comingBack]);
    const run = async (): Promise<void> => {
      const revoked = (): void => gone.abort(REVOKED);
      for await (const bytes of messagesOf(opened, signal, revoked)) {
        opened.begun();
        if (!call.write(bytes)) await once(call, 'drain', { signal });
        if (signal.aborted) break;
      }
      if (signal.aborted) throw endedBy(signal);
      call.end();
    };
    run().catch((error: unknown) => {
      if (!call.cancelled) call.emit('error', this.#failed(opened, signal.aborted ? endedBy(signal) : error));
    });
  }

  /** The call as its admission left it. */
  #openedBy(call: Duplexed | Streamed | Unary): AdmittedCall {
    const opened = this.#opened.get(call.metadata);
    if (opened === undefined) throw new Error('a call was not admitted');
    return opened;
  }

  /** Begins the answer, which names the request. */
  #begin(call: Duplexed | Streamed | Unary, { origin: { from } }: AdmittedCall): void {
    const metadata = new Metadata();
    metadata.set('x-request-id', from.requestId);
    call.sendMetadata(metadata);
  }

  /** The call as its admission left it, with its answer begun. */
  #take(call: Duplexed | Streamed | Unary): AdmittedCall {
    const opened = this.#openedBy(call);
    this.#begin(call, opened);
    return opened;
  }

  #failed(opened: Opened, error: unknown): { readonly code: number; readonly details: string } {
    const { code, details, isOurs } = statusOf(error);
    const { path } = opened.rpc;
    const { requestId } = opened.origin.from;
    if (isOurs) this.#parts.log.error({ err: error, path, requestId }, 'request failed');
    this.#parts.calls.failed(opened, details);
    return { code, details };
  }
}
