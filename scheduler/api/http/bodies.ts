// Reads request bodies into memory: only of requests that a surface has admitted, within a byte budget, and no slower
// than a minimum rate. server.ts makes it the parser of every content type.
// Invariant: no byte of a body is read before its sender is known (`admission` is set in onRequest). Held bytes are
// counted from the first chunk on, except a small body that arrives whole in it. An unfinished body is given up when it
// exceeds its limit, its budget or its time. Uploads do not come here: they stream.
import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { BodyBudget } from './body-budget.ts';
import { DISCARD_LITTLE, DISCARD_MUCH, closeUnread } from './polite-close.ts';

/** Facts about a sender that a surface knows before it reads the body. */
export interface Admission {
  /** known: the sender has a token or a signature · public: the route needs none. */
  readonly sender: 'known' | 'public';
  /** The payer whose share of the budget the body takes: the caller's workspace, or that of the public deployment. */
  readonly payer: WorkspaceId | '';
  readonly limitBytes: number;
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Set once the body may be read; null: no byte of the body is read. */
    admission: Admission | null;
    /** The reply, set together with the admission. */
    sender: FastifyReply | null;
    /** Bytes of a large, complete body that still count; 0: none. */
    heldBytes: number;
    /** Whether a look has seen the body under way: it took up to a second or longer. */
    isSlow: boolean;
  }
}

export interface BodyRules {
  /** Most bytes of known senders' bodies: unfinished ones, and large ones until they are handed on. */
  readonly knownBytes: number;
  /** Most bytes of bodies for public deployments, counted in the same way. */
  readonly publicBytes: number;
  /** Time that a body may take, plus a second for each `bytesPerSecond` of it that has come. */
  readonly graceMs: number;
  readonly bytesPerSecond: number;
  readonly lookEveryMs: number;
}

export const BODY_RULES: BodyRules = {
  knownBytes: 256 * 1024 * 1024,
  publicBytes: 64 * 1024 * 1024,
  graceMs: 20_000,
  bytesPerSecond: 8 * 1024,
  lookEveryMs: 1_000,
};

/** Largest complete body that does not count until it is handed on. */
const SMALL_BYTES = 64 * 1024;
/** A payer may hold this fraction of the budget, a quarter, and in any case a body of the largest size. */
const PAYER_SHARE = 4;
const RETRY_AFTER_SECONDS = 5;

type Done = (error: Error | null, body?: Buffer) => void;

/** Lets the body of a request be read. Call in onRequest, once the sender is known. */
export function admit(request: FastifyRequest, reply: FastifyReply, admission: Admission): void {
  request.admission = admission;
  request.sender = reply;
}

export class RequestBodies {
  readonly #rules: BodyRules;
  readonly #known: BodyBudget;
  readonly #public: BodyBudget;
  readonly #nowMs: () => number;
  readonly #readings = new Set<Reading>();
  #looking: NodeJS.Timeout | undefined;

  constructor(rules: BodyRules, largestBytes: number, nowMs: () => number = () => performance.now()) {
    this.#rules = rules;
    this.#nowMs = nowMs;
    const share = (totalBytes: number): BodyBudget =>
      new BodyBudget({
        totalBytes,
        payerBytes: Math.max(totalBytes / PAYER_SHARE, Math.min(largestBytes, totalBytes)),
      });
    this.#known = share(rules.knownBytes);
    this.#public = share(rules.publicBytes);
  }

  /** Bytes of bodies in memory now. */
  heldBytes(sender: Admission['sender']): number {
    return this.#budgetOf(sender).usedBytes;
  }

  /** The parser of every content type. A body without an admission stays unread, and the handler gets none. */
  readonly parse = (request: FastifyRequest, payload: IncomingMessage, done: Done): void => {
    const { admission, sender } = request;
    if (admission === null || sender === null) return done(null);
    const declared = Number(request.headers['content-length'] ?? Number.NaN);
    const budget = this.#budgetOf(admission.sender);
    const reading: Reading = {
      request,
      chunks: [],
      bytes: 0,
      booked: 0,
      sinceMs: null,
      end: (error) => {
        if (!this.#readings.delete(reading)) return;
        if (error === null) {
          const [first] = reading.chunks;
          const body = reading.chunks.length === 1 && first ? first : Buffer.concat(reading.chunks, reading.bytes);
          this.#keep(request, admission, reading);
          return done(null, body);
        }
        payload.off('data', onData);
        reading.chunks = [];
        budget.giveBack(admission.payer, reading.booked);
        const isKnown = admission.sender === 'known';
        closeUnread(request, sender, isKnown || error.code === 'body_too_large' ? DISCARD_MUCH : DISCARD_LITTLE);
        done(error);
      },
    };
    const onData = (chunk: Buffer): void => {
      if (reading.bytes + chunk.length > admission.limitBytes) return reading.end(tooLarge());
      // A small body that is complete in its first chunk is handed on before anything else is read.
      if (chunk.length !== declared || chunk.length > SMALL_BYTES) {
        if (!budget.take(admission.payer, chunk.length)) return reading.end(tooMany());
        reading.booked += chunk.length;
      }
      reading.bytes += chunk.length;
      reading.chunks.push(chunk);
    };
    this.#readings.add(reading);
    if (declared > admission.limitBytes) return reading.end(tooLarge());
    this.#looking ??= setInterval(() => this.#check(), this.#rules.lookEveryMs).unref();
    payload.on('data', onData);
    payload.on('end', () => {
      const isWhole = Number.isNaN(declared) || declared === reading.bytes;
      reading.end(isWhole ? null : new AppError('bad_request', 'the body has another length than Content-Length says'));
    });
    // A connection that closes before the end of the body is an error of the request, too.
    payload.on('error', () => reading.end(new AppError('bad_request', 'the body was cut off')));
    if (request.headers.expect !== undefined) sender.raw.writeContinue();
    payload.resume();
  };

  /**
   * Stops counting the body's bytes, once the body has been handed on
   * (a task has it, or it was refused). May be called at any time.
   */
  release(request: FastifyRequest): void {
    const { admission, heldBytes } = request;
    if (heldBytes === 0 || admission === null) return;
    request.heldBytes = 0;
    request.body = undefined;
    this.#budgetOf(admission.sender).giveBack(admission.payer, heldBytes);
  }

  stop(): void {
    clearInterval(this.#looking);
    this.#looking = undefined;
  }

  /** Keeps a large body counted until it has been handed on, or its answer is out. */
  #keep(request: FastifyRequest, { sender, payer }: Admission, { bytes, booked }: Reading): void {
    if (booked === 0) return;
    if (bytes <= SMALL_BYTES) return this.#budgetOf(sender).giveBack(payer, booked);
    request.heldBytes = booked;
    request.sender?.raw.once('close', () => this.release(request));
  }

  #budgetOf(sender: Admission['sender']): BodyBudget {
    return sender === 'known' ? this.#known : this.#public;
  }

  #check(): void {
    if (this.#readings.size === 0) return this.stop();
    const { graceMs, bytesPerSecond } = this.#rules;
    const nowMs = this.#nowMs();
    for (const reading of this.#readings) {
      reading.request.isSlow = true;
      reading.sinceMs ??= nowMs;
      const mayTakeMs = graceMs + (reading.bytes / bytesPerSecond) * 1000;
      if (nowMs - reading.sinceMs > mayTakeMs) reading.end(tooSlow(bytesPerSecond));
    }
  }
}

interface Reading {
  readonly request: FastifyRequest;
  chunks: Buffer[];
  bytes: number;
  /** Bytes among these that the budget counts. */
  booked: number;
  /** When a look first saw the body under way; null: not yet. A body that arrives at once needs no clock reading. */
  sinceMs: number | null;
  readonly end: (error: AppError | null) => void;
}

const tooLarge = (): AppError => new AppError('body_too_large', 'body is too large');
const tooMany = (): AppError =>
  new AppError('bodies_full', `too many request bodies are under way: try again in ${RETRY_AFTER_SECONDS} s`, {
    details: { retryAfterSeconds: RETRY_AFTER_SECONDS },
  });
const tooSlow = (bytesPerSecond: number): AppError =>
  new AppError('body_too_slow', `the body comes slower than ${bytesPerSecond} bytes per second`);
