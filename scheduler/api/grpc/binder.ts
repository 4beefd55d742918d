// Serves calls by the rules that HTTP has: the token is looked up before a message is read, the scope is checked, a
// handler has a deadline, and what it cannot do is an answer with `ok: false`. Called by server.ts.
// Invariants: a message that cannot be read uses no one-use token up. A handler's exception reaches the outside as a
// status, and its text only if the exception is an AppError.
import { AppError } from '#shared/errors.ts';
import { sleep, withDeadline } from '#shared/backoff.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { Places } from '#shared/places.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import type { Origin } from '../operations/operation.ts';
import { refusalOf } from '../operations/operation.ts';
import type { Authenticator } from '../http/auth.ts';
import { countsStill, lookAt } from '../http/auth.ts';
import { BodyBudget } from '../http/body-budget.ts';
import { INTERNAL, problemOf } from '../http/error-map.ts';
import type { GatewayCalls } from '../http/gateway-calls.ts';
import type { SseStreams } from '../http/sse.ts';
import type { Codecs, Messages, Plain } from './descriptor.ts';
import { MEMORY_RULES } from './requests.ts';
import type { RememberedAnswers } from './requests.ts';
import type { Rpc } from './rpcs.ts';
import type { Headers } from './services/service.ts';
import { CODES, INVALID_TOKEN, RpcStatus } from './statuses.ts';

/** Deadline of a handler when the client sets none, or a longer one. */
const HANDLER_DEADLINE_MS = 30_000;
/** Calls of a workspace in progress at once. */
export const MOST_CALLS = 128;
/** Bytes of a message from a client: a piece of a file, 4 MiB in published clients, with what is beside it. */
export const MOST_RECEIVED = 4 * 1024 * 1024 + 64 * 1024;
/** Pieces of files that are under way at once: in all, and of a workspace. */
const PIECES = { totalBytes: 64 * MOST_RECEIVED, payerBytes: 16 * MOST_RECEIVED } as const;

/** Time that a stream waits for a place, and interval of its looks. */
const PLACE_WITHIN_MS = 10_000;
const PLACE_LOOK_MS = 20;
/** Time for the first message of a call that has several. */
const FIRST_MESSAGE_MS = 30_000;
/** Interval of looks at the token of a stream. */
const LOOK_MS = 2_000;

/** A call whose metadata was read. */
export interface Opened {
  readonly rpc: Rpc;
  readonly origin: Origin;
  readonly headers: Headers;
  /** Id under which the client repeats the call; empty: it does not. */
  readonly requestId: string;
  /** Ids of requests whose answers the client has. */
  readonly acknowledged: readonly string[];
}

export interface BinderParts {
  readonly authenticator: Authenticator;
  readonly calls: GatewayCalls;
  readonly codecs: Codecs;
  readonly messages: Messages;
  readonly answers: RememberedAnswers;
  /** The room of streams, which those of HTTP take, too. */
  readonly streams: Pick<SseStreams, 'leave' | 'take'>;
  readonly log: Log;
}

/** A call that may go on. */
export interface Admitted {
  /** Workspace of its good token; null: it has none. */
  readonly workspaceId: WorkspaceId | null;
  /** The request of a stream is read and taken: from here it counts among streams alone. */
  readonly begun: () => void;
  readonly leave: () => void;
}

export class Binder {
  readonly #parts: BinderParts;
  readonly #places = new Places<WorkspaceId>(MOST_CALLS);
  readonly #pieces = new BodyBudget(PIECES);

  constructor(parts: BinderParts) {
    this.#parts = parts;
  }

  /**
   * Whether a call may go on, before its message is read.
   * @throws RpcStatus, AppError
   */
  async admit({ rpc, origin }: Pick<Opened, 'rpc' | 'origin'>): Promise<Admitted> {
    const { authenticator, streams } = this.#parts;
    const { bearer, from } = origin;
    const caller = bearer === null ? null : await lookAt(authenticator, bearer);
    if (caller === null) {
      if (rpc.scope === 'open') return { workspaceId: null, begun: () => undefined, leave: () => undefined };
      if (bearer !== null) authenticator.refused?.(from.remoteAddress);
      throw new RpcStatus(CODES.unauthenticated, INVALID_TOKEN);
    }
    const { workspaceId } = caller;
    const isStream = rpc.stream !== undefined || rpc.duplex !== undefined;
    const stream = isStream ? streams.take('calls', workspaceId) : undefined;
    const begun = await this.#place(workspaceId, isStream);
    let giveBack = (): void => undefined;
    const leave = (): void => {
      begun?.();
      if (stream !== undefined) streams.leave(stream);
      giveBack();
    };
    if (begun !== undefined) {
      try {
        if (rpc.isLarge === true) giveBack = this.#book(workspaceId);
      } catch (error) {
        leave();
        throw error;
      }
      return { workspaceId, begun: isStream ? begun : () => undefined, leave };
    }
    leave();
    const text = `this workspace has ${MOST_CALLS} calls in progress at this scheduler: wait for some to end`;
    throw new RpcStatus(CODES.resource_exhausted, text);
  }

  /** Books the bytes of a piece of a file. @throws RpcStatus */
  #book(workspaceId: WorkspaceId): () => void {
    if (!this.#pieces.take(workspaceId, MOST_RECEIVED))
      throw new RpcStatus(CODES.unavailable, 'too many pieces of files are under way: call again');
    return () => this.#pieces.giveBack(workspaceId, MOST_RECEIVED);
  }

  /** A place among the calls in progress. Streams wait for one: their clients call many at once, and not again. */
  async #place(workspaceId: WorkspaceId, mayWait: boolean): Promise<(() => void) | undefined> {
    for (let waitedMs = 0; ; waitedMs += PLACE_LOOK_MS) {
      const place = this.#places.take(workspaceId);
      if (place !== undefined || !mayWait || waitedMs >= PLACE_WITHIN_MS) return place;
      await sleep(PLACE_LOOK_MS);
    }
  }

  /** Answers a call with one message. @throws RpcStatus, AppError, DecodeError */
  async answer(opened: Opened, bytes: Buffer, deadlineMs: number): Promise<Buffer> {
    const { rpc } = opened;
    const begun = await this.#begin(opened, bytes);
    if (begun.refusal !== undefined) return this.#refuse(rpc, opened, begun.refusal);
    const { caller, message } = begun;
    const work = async (): Promise<Plain> => this.#handle(opened, caller, message);
    const most = Math.min(rpc.withinMs ?? HANDLER_DEADLINE_MS, deadlineMs);
    const late = () => new RpcStatus(CODES.deadline_exceeded, `${rpc.name} took longer than ${most} ms`);
    const { requestId } = opened;
    if (caller === null || requestId === '' || rpc.repeats === 'anew')
      return this.#parts.codecs.encode(rpc.response, await withDeadline(work(), most, late));
    const { workspaceId, tokenId } = caller;
    const answer = this.#parts.answers.answer({ workspaceId, tokenId, path: rpc.path, id: requestId }, async () => {
      const said = await work();
      return { bytes: this.#parts.codecs.encode(rpc.response, said), isKept: said['ok'] !== false };
    });
    return (await withDeadline(answer, most, late)).bytes;
  }

  /**
   * Answers a call with messages as they come.
   * @param take - gives the message, which is not held for as long as the stream is
   * @param revoked - called when the token counts no more
   * @throws RpcStatus, AppError, DecodeError
   */
  stream(opened: Opened, take: () => Buffer, signal: AbortSignal, revoked: () => void): AsyncGenerator<Buffer> {
    const { rpc } = opened;
    return this.#tell(opened, take, revoked, (caller, message) => rpc.stream?.(caller, message, signal));
  }

  /**
   * Answers messages with messages. An answer with the field `ok` tells a failure by `ok: false`, as unary calls do.
   * @param revoked - called when the token counts no more
   * @throws RpcStatus, AppError, DecodeError
   */
  async *duplex(
    opened: Opened,
    source: AsyncIterable<Buffer>,
    signal: AbortSignal,
    revoked: () => void,
  ): AsyncGenerator<Buffer> {
    const { rpc, headers } = opened;
    const iterator = source[Symbol.asyncIterator]();
    const first = await withDeadline(
      iterator.next(),
      FIRST_MESSAGE_MS,
      () => new RpcStatus(CODES.deadline_exceeded, 'no first message came'),
    );
    const read = (bytes: Buffer): unknown => rpc.read(this.#read(rpc, bytes), headers);
    async function* messages(message: unknown): AsyncGenerator<unknown> {
      yield message;
      for (let next = await iterator.next(); next.done !== true; next = await iterator.next()) yield read(next.value);
    }
    try {
      yield* this.#tell(
        opened,
        () => (first.done === true ? Buffer.alloc(0) : first.value),
        revoked,
        (caller, message) => rpc.duplex?.(caller, messages(message), signal),
      );
    } catch (error) {
      yield this.#refuse(rpc, opened, this.#refusalIn(rpc, error));
    }
  }

  /** The messages of an answer, while the token counts. */
  async *#tell(
    opened: Opened,
    take: () => Buffer,
    revoked: () => void,
    answersOf: (caller: Caller | null, message: unknown) => AsyncIterable<unknown> | undefined,
  ): AsyncGenerator<Buffer> {
    const { rpc } = opened;
    const { caller, message, refusal } = await this.#begin(opened, take());
    if (refusal !== undefined) throw new RpcStatus(CODES.invalid_argument, refusal);
    const watching = this.#watch(opened, caller, revoked);
    try {
      for await (const answer of answersOf(caller, message) ?? [])
        yield this.#parts.codecs.encode(rpc.response, rpc.tell(answer, caller));
    } finally {
      clearInterval(watching);
    }
  }

  /** Looks at the token of a stream again and again. A token of one use is used up, and its stream goes on. */
  #watch({ origin: { bearer } }: Opened, caller: Caller | null, revoked: () => void): NodeJS.Timeout | undefined {
    if (bearer === null || caller === null || caller.isLast === true) return undefined;
    const look = async (): Promise<void> => {
      if (!(await countsStill(() => lookAt(this.#parts.authenticator, bearer), caller))) revoked();
    };
    return setInterval(() => void look(), LOOK_MS).unref();
  }

  /** Reads the message, and finds the caller. */
  async #begin(opened: Opened, bytes: Buffer) {
    const { rpc, origin, headers, requestId, acknowledged } = opened;
    const { authenticator, calls, answers } = this.#parts;
    if (requestId.length > MEMORY_RULES.longestId)
      throw new RpcStatus(
        CODES.invalid_argument,
        `x-beta9-request-id must have at most ${MEMORY_RULES.longestId} characters`,
      );
    const wire = this.#read(rpc, bytes);
    const message = rpc.read(wire, headers);
    const caller = origin.bearer === null ? null : await authenticator.authenticate(origin.bearer);
    const isRefused = caller === null && origin.bearer !== null;
    if (caller !== null) {
      calls.began(opened, caller);
      answers.acknowledged(caller.workspaceId, caller.tokenId, acknowledged);
    } else if (rpc.scope !== 'open') {
      if (isRefused) authenticator.refused?.(origin.from.remoteAddress);
      throw new RpcStatus(CODES.unauthenticated, INVALID_TOKEN);
    }
    // An open operation may compare the bearer with an operator's secret.
    if (isRefused) authenticator.mayGuess?.(rpc.name, origin.from.remoteAddress);
    const refusal = (caller === null ? null : refusalOf(rpc, caller)) ?? rpc.refuses(wire);
    return { caller, message, refusal };
  }

  #read(rpc: Rpc, bytes: Buffer): Plain {
    try {
      return this.#parts.codecs.decode(rpc.request, bytes);
    } catch (error) {
      this.#parts.log.debug({ err: error, path: rpc.path }, 'a message cannot be read');
      throw new RpcStatus(CODES.invalid_argument, `the message is no ${rpc.request}`);
    }
  }

  async #handle(opened: Opened, caller: Caller | null, message: unknown): Promise<Plain> {
    const { rpc, origin: from, requestId } = opened;
    const { authenticator, calls } = this.#parts;
    const isRepeated = caller !== null && requestId !== '';
    const origin = isRepeated ? { ...from, repeatId: `${caller.tokenId} ${requestId}` } : from;
    const answer = await rpc
      .handle(caller, message, origin)
      .catch((error: unknown) => refused(this.#refusalIn(rpc, error)));
    const { ok, passes, errorMsg } = answer as Plain;
    if (ok === false && passes === true && rpc.repeats !== undefined)
      throw new RpcStatus(CODES.unavailable, String(errorMsg));
    calls.answered(opened, answer);
    const isWrong = caller === null && origin.bearer !== null && ok === false;
    if (isWrong) authenticator.guessed?.(rpc.name, origin.from.remoteAddress);
    return rpc.tell(answer, caller);
  }

  /**
   * The text of a failure that the client must be able to read: it prints nothing of a status. A failure that passes
   * has one where clients repeat the call for it.
   * @throws every other error
   */
  #refusalIn(rpc: Rpc, error: unknown): string {
    const { code, status, message } = error instanceof AppError ? problemOf(error) : INTERNAL;
    const isTold = status < 500 || rpc.repeats === undefined;
    if (code === INTERNAL.code || !isTold || !this.#hasOk(rpc)) throw error;
    return message;
  }

  /** Refuses in the answer's own words, or by a status where the answer has no `ok`. */
  #refuse(rpc: Rpc, opened: Opened, text: string): Buffer {
    if (!this.#hasOk(rpc)) throw new RpcStatus(CODES.invalid_argument, text);
    this.#parts.calls.failed(opened, text);
    return this.#parts.codecs.encode(rpc.response, refused(text));
  }

  #hasOk({ response }: Rpc): boolean {
    return this.#parts.messages.get(response)?.some(({ name }) => name === 'ok') === true;
  }
}

/** The encoder takes the field that the answer has. */
const refused = (text: string): Plain => ({ ok: false, errMsg: text, errorMsg: text, error: text });
