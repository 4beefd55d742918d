/**
 * Connections of the agents' port whose other end has not shown a credential yet. Anybody may open one, so they are
 * bounded in number, in time and in bytes, and a bound costs the address that opened most of them. Connections with a
 * credential are bounded by machine. Must stay true: strangers keep no agent out for longer than a reconnection.
 */
import type { Socket } from 'node:net';
import type { MachineId } from '#shared/domain/ids.ts';
import type { StrangerBounds } from './session-settings.ts';

const LOOK_EVERY_MS = 250;

interface Stranger {
  readonly socket: Socket;
  readonly address: string;
  /** Monotonic milliseconds. */
  dueAtMs: number;
}

/** `address:port`, as gRPC names the other end of a call. */
const peerOf = ({ remoteAddress = '', remotePort = 0 }: Socket): string => `${remoteAddress}:${remotePort}`;

/** The part of an address that one host or site has: of IPv6 its first 64 bits. */
export function siteOf(address: string): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/i, '');
  if (!plain.includes(':')) return plain;
  const [head = '', tail] = plain.split('::');
  const groups = head === '' ? [] : head.split(':');
  const behind = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? [] : Array<string>(Math.max(0, 8 - groups.length - behind.length)).fill('0');
  return [...groups, ...zeros, ...behind].slice(0, 4).join(':');
}

export class Strangers {
  readonly #bounds: StrangerBounds;
  /** By peer, in the order in which they came. */
  readonly #all = new Map<string, Stranger>();
  /** Peers of each address, in that order. */
  readonly #byAddress = new Map<string, Set<string>>();
  readonly #sockets = new Map<string, Socket>();
  readonly #ofMachine = new Map<MachineId, Set<Socket>>();
  #looking: NodeJS.Timeout | undefined;

  constructor(bounds: StrangerBounds) {
    this.#bounds = bounds;
  }

  get size(): number {
    return this.#all.size;
  }

  /** A connection came. */
  came(socket: Socket): void {
    const peer = peerOf(socket);
    const address = siteOf(socket.remoteAddress ?? '');
    this.#sockets.set(peer, socket);
    this.#all.set(peer, { socket, address, dueAtMs: performance.now() + this.#bounds.handshakeWithinMs });
    const ofAddress = this.#byAddress.get(address) ?? new Set();
    this.#byAddress.set(address, ofAddress.add(peer));
    socket.once('close', () => {
      if (this.#sockets.get(peer) === socket) this.#sockets.delete(peer);
      if (this.#all.get(peer)?.socket === socket) this.#forget(peer);
    });
    const { most, mostOfAddress } = this.#bounds;
    if (ofAddress.size > mostOfAddress) this.#closeOldest(ofAddress);
    else if (this.#all.size > most) this.#closeOldest(this.#largest());
    this.#looking ??= setInterval(() => this.#look(), LOOK_EVERY_MS).unref();
  }

  /** The TLS handshake of a connection has ended. */
  shookHands(socket: Socket): void {
    const stranger = this.#all.get(peerOf(socket));
    if (stranger !== undefined) stranger.dueAtMs = performance.now() + this.#bounds.knownWithinMs;
  }

  /** A connection has shown a credential. */
  known(socket: Socket): void {
    this.#forget(peerOf(socket));
  }

  /** Whether a connection is there. @param peer - as gRPC names it */
  isConnected(peer: string): boolean {
    const socket = this.#sockets.get(peer);
    return socket !== undefined && !socket.destroyed && socket.writable;
  }

  /**
   * A call of gRPC has shown a credential that is not a machine's.
   * @param peer - as gRPC names it
   * @returns its connection; undefined: it is closed
   */
  knownPeer(peer: string): Socket | undefined {
    this.#forget(peer);
    return this.#sockets.get(peer);
  }

  /** A call of gRPC has shown the credential of a machine. @param peer - as gRPC names it */
  knownByCall(peer: string, machineId: MachineId): void {
    const socket = this.#sockets.get(peer);
    if (socket === undefined) return;
    this.#forget(peer);
    const ofMachine = this.#ofMachine.get(machineId) ?? new Set();
    if (ofMachine.has(socket)) return;
    this.#ofMachine.set(machineId, ofMachine.add(socket));
    socket.once('close', () => {
      ofMachine.delete(socket);
      if (ofMachine.size === 0 && this.#ofMachine.get(machineId) === ofMachine) this.#ofMachine.delete(machineId);
    });
    const [oldest] = ofMachine;
    if (ofMachine.size > this.#bounds.mostOfMachine) oldest?.destroy();
  }

  /** Ends all connections of strangers. */
  close(): void {
    clearInterval(this.#looking);
    for (const { socket } of this.#all.values()) socket.destroy();
  }

  #forget(peer: string): void {
    const stranger = this.#all.get(peer);
    if (stranger === undefined) return;
    this.#all.delete(peer);
    const ofAddress = this.#byAddress.get(stranger.address);
    ofAddress?.delete(peer);
    if (ofAddress?.size === 0) this.#byAddress.delete(stranger.address);
  }

  #closeOldest(peers: ReadonlySet<string>): void {
    for (const peer of peers) return this.#close(peer);
  }

  #close(peer: string): void {
    const stranger = this.#all.get(peer);
    this.#forget(peer);
    stranger?.socket.destroy();
  }

  #largest(): ReadonlySet<string> {
    let largest: ReadonlySet<string> = new Set();
    for (const peers of this.#byAddress.values()) if (peers.size > largest.size) largest = peers;
    return largest;
  }

  /** Closes those that are late, or have sent too much. */
  #look(): void {
    const nowMs = performance.now();
    let bytes = 0;
    for (const [peer, { socket, dueAtMs }] of this.#all) {
      bytes += socket.bytesRead;
      if (dueAtMs < nowMs || socket.bytesRead > this.#bounds.mostBytes) this.#close(peer);
    }
    if (bytes > this.#bounds.mostBytesTogether) {
      const largestFirst = [...this.#all].toSorted(([, a], [, b]) => b.socket.bytesRead - a.socket.bytesRead);
      for (const [peer, { socket }] of largestFirst) {
        if (bytes <= this.#bounds.mostBytesTogether) break;
        bytes -= socket.bytesRead;
        this.#close(peer);
      }
    }
    if (this.#all.size > 0) return;
    clearInterval(this.#looking);
    this.#looking = undefined;
  }
}
