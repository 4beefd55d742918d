// Serves calls by the rules that HTTP has: the token is looked up before a message is read, the scope is checked, a
// handler has a deadline, and what it cannot do is an answer with `ok: false`. Called by server.ts.
// Invariants: a message that cannot be read uses no one-use token up. A handler's exception reaches the outside as a
// status, and its text only if the exception is an AppError.
import { AppError } from '#shared/errors.ts';
import { withDeadline } from '#shared/backoff.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { Places } from '#shared/places.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import type { Origin } from '../operations/operation.ts';
import { refusalOf } from '../operations/operation.ts';
import type { Authenticator } from '../http/auth.ts';
import { lookAt } from '../http/auth.ts';
import { problemOf } from '../http/error-map.ts';
import type { GatewayCalls } from '../http/gateway-calls.ts';
import type { Codecs, Messages, Plain } from './descriptor.ts';
import { MEMORY_RULES } from './requests.ts';
import type { RememberedAnswers } from './requests.ts';
import type { Rpc } from './rpcs.ts';
import { CODES, INVALID_TOKEN, RpcStatus } from './statuses.ts';

/** Deadline of a handler when the client sets none, or a longer one. */
const HANDLER_DEADLINE_MS = 30_000;
/** Calls of a workspace in progress at once. */
export const MOST_CALLS = 128;

/** A call whose metadata was read. */
export interface Opened {
  readonly rpc: Rpc;
  readonly origin: Origin;
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
  readonly log: Log;
}

export class Binder {
  readonly #parts: BinderParts;
  readonly #places = new Places<WorkspaceId>(MOST_CALLS);

  constructor(parts: BinderParts) {
    this.#parts = parts;
  }

  /**
   * Whether a call may go on, before its message is read.
   * @returns the workspace of its good token, null without one, and a function that ends the call
   * @throws RpcStatus, AppError
   */
  async admit({ rpc, origin }: Opened): Promise<{
    readonly workspaceId: WorkspaceId | null;
    readonly leave: () => void;
  }> {
    const { authenticator } = this.#parts;
    const { bearer, from } = origin;
    const caller = bearer === null ? null : await lookAt(authenticator, bearer);
    if (caller === null) {
      if (rpc.scope === 'open') return { workspaceId: null, leave: () => undefined };
      if (bearer !== null) authenticator.refused?.(from.remoteAddress);
      throw new RpcStatus(CODES.unauthenticated, INVALID_TOKEN);
    }
    const leave = this.#places.take(caller.workspaceId);
    if (leave === undefined) {
      const text = `this workspace has ${MOST_CALLS} calls in progress at this scheduler: wait for some to end`;
      throw new RpcStatus(CODES.resource_exhausted, text);
    }
    return { workspaceId: caller.workspaceId, leave };
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
    if (caller === null || requestId === '')
      return this.#parts.codecs.encode(rpc.response, await withDeadline(work(), most, late));
    const { workspaceId, tokenId } = caller;
    const answer = this.#parts.answers.answer({ workspaceId, tokenId, path: rpc.path, id: requestId }, async () => {
      const said = await work();
      return { bytes: this.#parts.codecs.encode(rpc.response, said), isKept: said['ok'] !== false };
    });
    return (await withDeadline(answer, most, late)).bytes;
  }

  /** Answers a call with messages as they come. @throws RpcStatus, AppError, DecodeError */
  async *stream(opened: Opened, bytes: Buffer, signal: AbortSignal): AsyncGenerator<Buffer> {
    const { rpc } = opened;
    const begun = await this.#begin(opened, bytes);
    if (begun.refusal !== undefined) throw new RpcStatus(CODES.invalid_argument, begun.refusal);
    const { caller, message } = begun;
    for await (const answer of rpc.stream?.(caller, message, signal) ?? [])
      yield this.#parts.codecs.encode(rpc.response, rpc.tell(answer, caller));
  }

  /** Reads the message, and finds the caller. */
  async #begin(opened: Opened, bytes: Buffer) {
    const { rpc, origin, requestId, acknowledged } = opened;
    const { authenticator, calls, answers } = this.#parts;
    if (requestId.length > MEMORY_RULES.longestId)
      throw new RpcStatus(
        CODES.invalid_argument,
        `x-beta9-request-id must have at most ${MEMORY_RULES.longestId} characters`,
      );
    const wire = this.#read(rpc, bytes);
    const message = rpc.read(wire);
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
    const { rpc, origin } = opened;
    const { authenticator, calls } = this.#parts;
    const answer = await rpc.handle(caller, message, origin).catch((error: unknown) => {
      // An AppError with a status of 4xx is a refusal that the client must be able to read.
      const problem = error instanceof AppError ? problemOf(error) : undefined;
      if (problem === undefined || problem.status >= 500 || !this.#hasOk(rpc)) throw error;
      return refused(problem.message);
    });
    calls.answered(opened, answer);
    const isWrong = caller === null && origin.bearer !== null && (answer as Plain)['ok'] === false;
    if (isWrong) authenticator.guessed?.(rpc.name, origin.from.remoteAddress);
    return rpc.tell(answer, caller);
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
