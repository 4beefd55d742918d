// Chooses each session's way: the socket of the scheduler on this machine where it exists, else its address with TLS.
// Must stay true: a way that fails does not keep the agent from trying the other one next.
import { lstatSync } from 'node:fs';
import type { Socket } from 'node:net';
import { dirname } from 'node:path';
import { bytesSocketOf } from '#shared/protocol/byte-connections.ts';
import type { AgentLinkClient } from '#shared/protocol/generated/messages.ts';
import { isPrivateDirectory } from '#shared/socket-path.ts';
import type { ChannelUse } from './channel.ts';
import { openChannel, openLocalChannel } from './channel.ts';
import type { Identity } from './identity.ts';
import type { JoinFacts } from './join.ts';
import { routeTo } from '../proxy.ts';
import { dialBytes, dialLocalBytes } from './byte-sockets.ts';

export class Dialler {
  readonly #facts: JoinFacts;
  /** The last session used the socket, and was not welcomed. */
  #inDoubt = false;

  constructor(facts: JoinFacts) {
    this.#facts = facts;
  }

  /** Opens a channel for one session; the caller closes it. */
  open(identity: Identity): AgentLinkClient {
    const { socketPath } = this.#facts;
    const usable = socketPath !== undefined && !this.#inDoubt && isOwnSocket(socketPath);
    this.#inDoubt = usable;
    return usable ? openLocalChannel(socketPath) : this.#overNetwork(identity, 'session');
  }

  /**
   * Opens another channel by the current session's way, for bodies: their bytes neither wait for the session's nor
   * delay them.
   */
  beside(identity: Identity): AgentLinkClient {
    const { socketPath } = this.#facts;
    return socketPath !== undefined && isOwnSocket(socketPath)
      ? openLocalChannel(socketPath, 'bodies')
      : this.#overNetwork(identity, 'bodies');
  }

  /** Dials a connection for bytes by the current session's way. @throws AppError or Error: nobody answers there */
  async bytes(identity: Identity): Promise<Socket> {
    const { socketPath } = this.#facts;
    const bytesPath = socketPath === undefined ? undefined : bytesSocketOf(socketPath);
    if (bytesPath !== undefined && isOwnSocket(bytesPath)) return dialLocalBytes(bytesPath);
    const address = this.#facts.address ?? identity.address;
    return await dialBytes(address, identity.caPem, routeTo(address, this.#facts.proxies).proxy);
  }

  #overNetwork(identity: Identity, use: ChannelUse): AgentLinkClient {
    const address = this.#facts.address ?? identity.address;
    return openChannel(address, identity.caPem, routeTo(address, this.#facts.proxies).proxy, use);
  }

  /** Called when the session works. */
  welcomed(): void {
    this.#inDoubt = false;
  }
}

/** Whether the socket is in a directory that only this user can enter: its listener is then this user too. */
function isOwnSocket(path: string): boolean {
  try {
    return isPrivateDirectory(lstatSync(dirname(path))) && lstatSync(path).isSocket();
  } catch {
    return false;
  }
}
