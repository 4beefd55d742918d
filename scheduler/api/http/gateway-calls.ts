// Calls of the gateway as events `gateway.endpoint.called`, for live streams that ask for them. A call whose token is
// refused belongs to no workspace, and is told nobody. Source: REST §9.2.
import type { PassingEvents } from '../../workspaces/events/passing.ts';
import { bounded } from '../../workspaces/events/audit.ts';
import type { RequestFacts } from '../../workspaces/events/audit.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';

interface Call {
  readonly caller: Caller;
  error: string;
}

/** A call that has ended, as its event tells it. */
export interface EndedCall {
  readonly from: RequestFacts;
  readonly method: string;
  readonly path: string;
  /** Status of HTTP. */
  readonly status: number;
  readonly contentType: string;
  readonly accept: string;
}

const MOST_PATH = 500;
const MOST_ERROR = 500;

export class GatewayCalls {
  readonly #passing: Pick<PassingEvents, 'wants' | 'tell'>;
  readonly #nowMs: () => number;
  /** Calls that somebody wants to hear of, until they are answered. */
  readonly #calls = new WeakMap<object, Call>();

  constructor(passing: Pick<PassingEvents, 'wants' | 'tell'>, nowMs: () => number) {
    this.#passing = passing;
    this.#nowMs = nowMs;
  }

  /** Notes whose call it is. @param request - the same object in every call about this request */
  began(request: object, caller: Caller): void {
    if (this.#passing.wants(caller.workspaceId, 'gateway.endpoint.called'))
      this.#calls.set(request, { caller, error: '' });
  }

  /** Notes what the call is told instead of an answer. */
  failed(request: object, error: string): void {
    const call = this.#calls.get(request);
    if (call !== undefined) call.error = error;
  }

  /** Notes the text of an answer that says `ok: false`. */
  answered(request: object, answer: unknown): void {
    if (!this.#calls.has(request)) return;
    const { ok, errMsg, errorMsg, error } = answer as Readonly<Record<string, unknown>>;
    const text = [errMsg, errorMsg, error].find((one) => typeof one === 'string');
    if (ok === false && typeof text === 'string') this.failed(request, text);
  }

  ended(request: object, endedCall: () => EndedCall): void {
    const call = this.#calls.get(request);
    if (call === undefined) return;
    this.#calls.delete(request);
    const { workspaceId } = call.caller;
    const { from, method, path, status, contentType, accept } = endedCall();
    this.#passing.tell({
      workspaceId,
      type: 'gateway.endpoint.called',
      atMs: this.#nowMs(),
      data: {
        method,
        path: bounded(path, MOST_PATH),
        workspace_id: workspaceId,
        status_code: status,
        user_agent: from.userAgent,
        remote_ip: from.remoteAddress,
        request_id: from.requestId,
        content_type: bounded(contentType),
        accept: bounded(accept),
        error_message: bounded(call.error, MOST_ERROR),
      },
    });
  }
}
