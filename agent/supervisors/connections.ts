/**
 * The connections between the agent and the supervisor of one container, which dials `supervisor.sock`. Must stay true:
 * streams and connections are bounded; a stream that nobody serves in time is answered.
 */
import type { Socket } from 'node:net';
import { DialledConnections } from '../slots/dialled.ts';
import type { Refusal } from './refuse.ts';
import { refuse } from './refuse.ts';

/** Most streams of one container at once. */
export const MOST_STREAMS = 256;
/** Connections beside those of streams: the one that waits, those that end, and strangers. */
const SPARE_CONNECTIONS = 32;
/** Time for a supervisor to dial: it does within 1 s of an agent's start. */
const DIAL_MS = 15_000;

export class SupervisorConnections {
  readonly #connections: DialledConnections;
  readonly #dialMs: number;
  #listening: Promise<void> | undefined;
  readonly #onDialled = new Set<(isDialled: boolean) => void>();

  constructor(path: string, dialMs = DIAL_MS) {
    this.#dialMs = dialMs;
    this.#connections = new DialledConnections(path, MOST_STREAMS + SPARE_CONNECTIONS, () => {
      if (this.#connections.isWaiting) for (const tell of this.#onDialled) tell(true);
    });
  }

  /** Listens; a failure is tried again by the next call. */
  listen(): Promise<void> {
    this.#listening ??= this.#connections.listen().catch((error: unknown) => {
      this.#listening = undefined;
      throw error;
    });
    return this.#listening;
  }

  /** Whether a supervisor is connected. */
  get isConnected(): boolean {
    return this.#connections.isConnected;
  }

  get isFull(): boolean {
    return this.#connections.streams >= MOST_STREAMS;
  }

  /** Serves a stream as soon as a connection waits. */
  take(link: Socket): void {
    const late = setTimeout(() => {
      if (this.#connections.takeBack(link))
        refuse(link, { code: 'failed', error: 'the supervisor of the container does not answer' });
    }, this.#dialMs);
    late.unref();
    link.once('close', () => clearTimeout(late));
    this.#connections.take(link);
  }

  /** Resolves once a connection waits; false after `ms`. */
  async dialled(ms: number): Promise<boolean> {
    if (this.#connections.isWaiting) return true;
    return new Promise((resolve) => {
      const tell = (isDialled: boolean): void => {
        clearTimeout(timer);
        this.#onDialled.delete(tell);
        resolve(isDialled);
      };
      const timer = setTimeout(() => tell(false), ms);
      this.#onDialled.add(tell);
    });
  }

  /** Answers the streams that wait. */
  fail(refusal: Refusal): void {
    this.#connections.giveUp((link) => refuse(link, refusal));
  }

  /** Ends all streams; a supervisor that lives on dials again when an agent listens again. */
  close(refusal: Refusal): void {
    this.#connections.close((link) => refuse(link, refusal));
  }
}
