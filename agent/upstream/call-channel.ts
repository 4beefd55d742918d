// A connection for calls of containers, beside the session's, so that no body delays a ping. The first call of a
// session opens it.
import type { AgentLinkClient } from '#shared/protocol/generated/messages.ts';
import type { UpstreamCall } from '../gateway/relay.ts';
import { bearer } from './channel.ts';
import type { Dialler } from './dialler.ts';
import type { Identity } from './identity.ts';

export class CallChannel {
  readonly #dialler: Dialler;
  #calls: AgentLinkClient | undefined;
  #sessionId = '';

  constructor(dialler: Dialler) {
    this.#dialler = dialler;
  }

  /** Opens a call of a container. */
  open(identity: Identity, sessionId: string, deadlineMs: number): UpstreamCall {
    if (this.#sessionId !== sessionId) this.close();
    this.#sessionId = sessionId;
    this.#calls ??= this.#dialler.beside(identity);
    return this.#calls.callGateway(bearer(identity.credential, sessionId), { deadline: Date.now() + deadlineMs });
  }

  /** Closes the connection after its running calls. */
  close(): void {
    this.#calls?.close();
    this.#calls = undefined;
  }
}
