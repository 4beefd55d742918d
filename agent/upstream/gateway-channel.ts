// The connection for calls of containers, beside the session's, so that no body delays a ping. All calls of a session
// share it, and the first one opens it.
import type { AgentLinkClient } from '#shared/protocol/generated/messages.ts';
import type { UpstreamCall } from '../gateway/relay.ts';
import { bearer } from './channel.ts';
import type { Dialler } from './dialler.ts';
import type { Identity } from './identity.ts';

export class GatewayChannel {
  readonly #dialler: Dialler;
  #client: AgentLinkClient | undefined;
  #sessionId = '';

  constructor(dialler: Dialler) {
    this.#dialler = dialler;
  }

  open(identity: Identity, sessionId: string, deadlineMs: number): UpstreamCall {
    if (this.#sessionId !== sessionId) this.close();
    this.#sessionId = sessionId;
    this.#client ??= this.#dialler.beside(identity);
    return this.#client.callGateway(bearer(identity.credential, sessionId), { deadline: Date.now() + deadlineMs });
  }

  /** Closes the connection after its running calls. */
  close(): void {
    this.#client?.close();
    this.#client = undefined;
  }
}
