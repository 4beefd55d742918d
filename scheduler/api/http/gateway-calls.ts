// Calls of the gateway as events `gateway.endpoint.called`, for live streams that ask for them. A call whose token is
// refused belongs to no workspace, and is told nobody. Source: REST §9.2.
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { PassingEvents } from '../../workspaces/events/passing.ts';
import { bounded } from '../../workspaces/events/audit.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import { factsOf } from './origin.ts';

interface Call {
  readonly caller: Caller;
  error: string;
}

const MOST_PATH = 500;
const MOST_ERROR = 500;

export class GatewayCalls {
  readonly #passing: Pick<PassingEvents, 'wants' | 'tell'>;
  readonly #nowMs: () => number;
  /** Calls that somebody wants to hear of, until they are answered. */
  readonly #calls = new WeakMap<FastifyRequest, Call>();

  constructor(passing: Pick<PassingEvents, 'wants' | 'tell'>, nowMs: () => number) {
    this.#passing = passing;
    this.#nowMs = nowMs;
  }

  /** Notes whose call it is. */
  began(request: FastifyRequest, caller: Caller): void {
    if (this.#passing.wants(caller.workspaceId, 'gateway.endpoint.called'))
      this.#calls.set(request, { caller, error: '' });
  }

  /** Notes what the call is told instead of an answer. */
  failed(request: FastifyRequest, error: string): void {
    const call = this.#calls.get(request);
    if (call !== undefined) call.error = error;
  }

  /** Notes the text of an answer that says `ok: false`. */
  answered(request: FastifyRequest, answer: unknown): void {
    if (!this.#calls.has(request)) return;
    const { ok, errMsg, errorMsg, error } = answer as Readonly<Record<string, unknown>>;
    const text = [errMsg, errorMsg, error].find((one) => typeof one === 'string');
    if (ok === false && typeof text === 'string') this.failed(request, text);
  }

  ended(request: FastifyRequest, reply: FastifyReply): void {
    const call = this.#calls.get(request);
    if (call === undefined) return;
    this.#calls.delete(request);
    const { workspaceId } = call.caller;
    const { remoteAddress, userAgent, requestId } = factsOf(request);
    this.#passing.tell({
      workspaceId,
      type: 'gateway.endpoint.called',
      atMs: this.#nowMs(),
      data: {
        method: request.method,
        // Without the query, which may carry a token.
        path: bounded(request.url.split('?', 1)[0] ?? '', MOST_PATH),
        workspace_id: workspaceId,
        status_code: reply.statusCode,
        user_agent: userAgent,
        remote_ip: remoteAddress,
        request_id: requestId,
        content_type: bounded(request.headers['content-type'] ?? ''),
        accept: bounded(request.headers.accept ?? ''),
        error_message: bounded(call.error, MOST_ERROR),
      },
    });
  }
}
