// Connections for bytes, beside the session's, so that no body delays a ping: calls of containers have one, streamed
// calls another. Each is opened by the first call of a session that needs it.
import type { AgentLinkClient } from '#shared/protocol/generated/messages.ts';
import type { UpstreamCall } from '../gateway/relay.ts';
import type { CarryCall } from '../slots/streams.ts';
import { bearer } from './channel.ts';
import type { Dialler } from './dialler.ts';
import type { Identity } from './identity.ts';

export class BodyChannels {
  readonly #dialler: Dialler;
  #calls: AgentLinkClient | undefined;
  #streams: AgentLinkClient | undefined;
  #sessionId = '';

  constructor(dialler: Dialler) {
    this.#dialler = dialler;
  }

  /** Opens a call of a container. */
  open(identity: Identity, sessionId: string, deadlineMs: number): UpstreamCall {
    this.#begin(sessionId);
    this.#calls ??= this.#dialler.beside(identity);
    return this.#calls.callGateway(bearer(identity.credential, sessionId), { deadline: Date.now() + deadlineMs });
  }

  /** Opens the stream of a streamed call, without a deadline: its ends decide how long it lasts. */
  carry(identity: Identity, sessionId: string): CarryCall {
    this.#begin(sessionId);
    this.#streams ??= this.#dialler.beside(identity);
    return this.#streams.carry(bearer(identity.credential, sessionId));
  }

  #begin(sessionId: string): void {
    if (this.#sessionId !== sessionId) this.close();
    this.#sessionId = sessionId;
  }

  /** Closes the connections after their running calls. */
  close(): void {
    this.#calls?.close();
    this.#calls = undefined;
    this.#streams?.close();
    this.#streams = undefined;
  }
}
