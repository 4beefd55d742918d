// The connection that carries calls of containers, beside the session's, so that no body holds up a ping. One for all calls of a session, opened by the first of them.
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

  /** What is under way goes on to its end. */
  close(): void {
    this.#client?.close();
    this.#client = undefined;
  }
}
