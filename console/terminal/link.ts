// The way from a terminal to its shell: a ticket, a WebSocket, and the same shell again where the connection was lost.
// Invariants: a ticket is in no address. Output that the terminal has not drawn is bounded: above the bound the link
// pauses, and goes on behind what came.
import { apiErrorOf, root, send } from '../api/client.ts';

export type Told =
  | { readonly kind: 'dialling' | 'open' }
  | { readonly kind: 'lost'; readonly bytes: number }
  /** isOver: the session is over, or may not open terminals. */
  | { readonly kind: 'refused'; readonly message: string; readonly isOver: boolean }
  | { readonly kind: 'again' }
  | { readonly kind: 'ended'; readonly exitCode: number; readonly signal: string };

export interface Size {
  readonly rows: number;
  readonly columns: number;
}

interface Around {
  readonly containerId: string;
  readonly size: () => Size;
  /** Draws bytes, and calls when they are drawn. */
  readonly draw: (bytes: Uint8Array, drawn: () => void) => void;
  readonly tell: (told: Told) => void;
}

const PROTOCOL = 'longshore-terminal';
/** Bytes that are not drawn above which the link pauses, and below which it goes on. */
const MOST_UNDRAWN = 4 * 1024 * 1024;
const GO_ON_BELOW = 256 * 1024;
/** Bytes of keys and pastes that one message has at most. */
const MOST_TYPED = 256 * 1024;
/** Close codes, as `scheduler/api/http/containers/sockets.ts` has them. */
const REFUSED = 1008;
const PAUSE = 4000;
/** Time for which a lost connection is tried again: the shell is hung up after it. */
const TRY_FOR_MS = 300_000;
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5_000;

export class Link {
  readonly #around: Around;
  #socket: WebSocket | undefined;
  #pid: number | undefined;
  #seen = 0;
  #undrawn = 0;
  #isOver = false;
  #isPaused = false;
  #lostAtMs: number | undefined;
  #waitMs = FIRST_WAIT_MS;
  /** Reason that the scheduler gave before it closed. */
  #why = '';

  constructor(around: Around) {
    this.#around = around;
    void this.#dial();
  }

  type(bytes: Uint8Array<ArrayBuffer>): void {
    if (this.#socket?.readyState !== WebSocket.OPEN || this.#pid === undefined) return;
    for (let at = 0; at < bytes.length; at += MOST_TYPED) this.#socket.send(bytes.slice(at, at + MOST_TYPED));
  }

  resize(size: Size): void {
    if (this.#socket?.readyState !== WebSocket.OPEN || this.#pid === undefined) return;
    this.#socket.send(JSON.stringify({ resize: size }));
  }

  /** Leaves, which hangs the shell up. */
  close(): void {
    this.#isOver = true;
    this.#socket?.close(1000);
  }

  async #dial(): Promise<void> {
    const { containerId, size, tell } = this.#around;
    tell({ kind: 'dialling' });
    let ticket: string;
    try {
      const answer = await send('/api/terminals', { method: 'POST', body: { container_id: containerId } });
      ({ ticket } = (await answer.json()) as { readonly ticket: string });
    } catch (error) {
      const { status, message } = apiErrorOf(error);
      const mayPass = status === 0 || status === 429 || status >= 500;
      return mayPass ? this.#later() : this.#refused(message, status === 401);
    }
    if (this.#isOver) return;
    const { rows, columns } = size();
    const query = this.#pid === undefined ? `rows=${rows}&columns=${columns}` : `pid=${this.#pid}&from=${this.#seen}`;
    const address = new URL(`${root}/api/terminals?${query}`, location.href);
    address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(address, [PROTOCOL, ticket]);
    socket.binaryType = 'arraybuffer';
    this.#socket = socket;
    socket.addEventListener('message', ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (typeof data === 'string') this.#said(data);
      else this.#came(new Uint8Array(data));
    });
    socket.addEventListener('close', ({ code, reason }) => this.#closed(code, reason));
  }

  #came(bytes: Uint8Array): void {
    this.#seen += bytes.length;
    this.#undrawn += bytes.length;
    this.#around.draw(bytes, () => {
      this.#undrawn -= bytes.length;
      if (!this.#isPaused || this.#undrawn > GO_ON_BELOW || this.#socket?.readyState !== WebSocket.CLOSED) return;
      this.#isPaused = false;
      void this.#dial();
    });
    if (this.#undrawn <= MOST_UNDRAWN || this.#isPaused) return;
    // A browser cannot hold a WebSocket back. The shell keeps its last output meanwhile.
    this.#isPaused = true;
    this.#socket?.close(PAUSE);
  }

  #said(text: string): void {
    const said = JSON.parse(text) as {
      readonly pid?: number;
      readonly exitCode?: number;
      readonly signal?: string;
      readonly lost?: { readonly bytes: number };
      readonly error?: { readonly message: string };
    };
    const { tell, size } = this.#around;
    if (said.pid !== undefined) {
      this.#pid = said.pid;
      this.#lostAtMs = undefined;
      this.#waitMs = FIRST_WAIT_MS;
      this.resize(size());
      tell({ kind: 'open' });
    }
    if (said.lost !== undefined) {
      this.#seen += said.lost.bytes;
      tell({ kind: 'lost', bytes: said.lost.bytes });
    }
    if (said.exitCode !== undefined) {
      this.#isOver = true;
      tell({ kind: 'ended', exitCode: said.exitCode, signal: said.signal ?? '' });
    }
    if (said.error !== undefined && this.#pid === undefined) this.#refused(said.error.message, false);
    else if (said.error !== undefined) this.#why = said.error.message;
  }

  #closed(code: number, reason: string): void {
    if (this.#isOver) return;
    if (code === REFUSED) return this.#refused(this.#why === '' ? reason : this.#why, this.#why === '');
    if (this.#isPaused && this.#undrawn > GO_ON_BELOW) return;
    this.#isPaused = false;
    this.#later();
  }

  #later(): void {
    if (this.#isOver) return;
    const nowMs = performance.now();
    this.#lostAtMs ??= nowMs;
    if (nowMs - this.#lostAtMs > TRY_FOR_MS)
      return this.#refused('the connection was lost for 5 minutes, and the shell was hung up', false);
    this.#around.tell({ kind: 'again' });
    setTimeout(() => void this.#dial(), this.#waitMs);
    this.#waitMs = Math.min(this.#waitMs * 2, LONGEST_WAIT_MS);
  }

  #refused(message: string, isOver: boolean): void {
    this.#isOver = true;
    this.#around.tell({ kind: 'refused', message, isOver });
  }
}
