// By which way each session goes: the socket of the scheduler on this machine where there is one, else its address with TLS. What must stay true: a way that leads nowhere does not keep the agent
// from trying the other one next.
import { lstatSync } from 'node:fs';
import { dirname } from 'node:path';
import type { AgentLinkClient } from '#shared/protocol/generated/messages.ts';
import { isPrivateDirectory } from '#shared/socket-path.ts';
import type { ChannelUse } from './channel.ts';
import { openChannel, openLocalChannel } from './channel.ts';
import type { Identity } from './identity.ts';
import type { JoinFacts } from './join.ts';
import { wayTo } from './proxy.ts';

export class Dialler {
  readonly #facts: JoinFacts;
  /** The last session went by the socket, and was not welcomed yet. */
  #inDoubt = false;

  constructor(facts: JoinFacts) {
    this.#facts = facts;
  }

  /** A channel for one session; its owner closes it. */
  open(identity: Identity): AgentLinkClient {
    const { socketPath } = this.#facts;
    const usable = socketPath !== undefined && !this.#inDoubt && isOwnSocket(socketPath);
    this.#inDoubt = usable;
    return usable ? openLocalChannel(socketPath) : this.#overNetwork(identity, 'session');
  }

  /** Another channel, for bodies, by the way of the session that is up: its bytes wait for nothing of the first, and hold up nothing there. */
  beside(identity: Identity): AgentLinkClient {
    const { socketPath } = this.#facts;
    return socketPath !== undefined && isOwnSocket(socketPath)
      ? openLocalChannel(socketPath, 'bodies')
      : this.#overNetwork(identity, 'bodies');
  }

  #overNetwork(identity: Identity, use: ChannelUse): AgentLinkClient {
    const address = this.#facts.address ?? identity.address;
    return openChannel(address, identity.caPem, wayTo(address, this.#facts.proxies).proxy, use);
  }

  /** The session works. */
  welcomed(): void {
    this.#inDoubt = false;
  }
}

/** True when there is a socket in a directory that nobody but this user can enter: who listens there is this user, too. */
function isOwnSocket(path: string): boolean {
  try {
    return isPrivateDirectory(lstatSync(dirname(path))) && lstatSync(path).isSocket();
  } catch {
    return false;
  }
}
