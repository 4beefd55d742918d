// Idempotency keys of calls to models: a repeated call gets the first one's answer, and another call under the same key
// is refused. Source: reference of the inference API, §6, §7.
import { createHash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Log } from '#shared/log.ts';
import type { KeptAnswer, KeptAnswers, KeyedCall } from '../../../stores/queues/kept-answers.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { KEY_PROBLEM, keyOf } from '../invoke/idempotency-key.ts';
import { InferenceError, badRequest } from './errors.ts';
import { unavailable } from './failures.ts';

const FINAL = { 'x-should-retry': 'false' };
const SOON = { 'x-should-retry': 'true', 'retry-after': '1' };

/** A key that this call has claimed. No method throws: a key that is not written lapses. */
export class ClaimedKey {
  readonly #call: KeyedCall;
  readonly #answers: Pick<KeptAnswers, 'keep' | 'spend' | 'release'>;
  readonly #log: Log;

  constructor(call: KeyedCall, answers: Pick<KeptAnswers, 'keep' | 'spend' | 'release'>, log: Log) {
    this.#call = call;
    this.#answers = answers;
    this.#log = log;
  }

  keep(answer: KeptAnswer): Promise<void> {
    return this.#quietly(this.#answers.keep(this.#call, answer));
  }

  spend(): Promise<void> {
    return this.#quietly(this.#answers.spend(this.#call));
  }

  release(): Promise<void> {
    return this.#quietly(this.#answers.release(this.#call));
  }

  async #quietly(written: Promise<void>): Promise<void> {
    await written.catch((error: unknown) => {
      this.#log.info({ err: error }, 'an idempotency key of a call to a model was not written');
    });
  }
}

/** The key that a request names, for that route. @throws InferenceError 400 @returns undefined: it names none */
export function keyedCallOf(request: FastifyRequest, route: string, caller: Caller): KeyedCall | undefined {
  const key = keyOf(request.headers['idempotency-key']);
  if (key === undefined) return undefined;
  if (key === null) throw badRequest(KEY_PROBLEM, undefined, 'invalid_idempotency_key');
  const body = request.body instanceof Uint8Array ? request.body : new Uint8Array();
  const fingerprint = createHash('sha256').update(`${route}\n`).update(body).digest('base64url');
  return { workspaceId: caller.workspaceId, tokenId: caller.tokenId, key, fingerprint };
}

export const otherBody = (): InferenceError =>
  conflict('the Idempotency-Key stands for a call with another body', FINAL);

/**
 * Claims the key of a call.
 * @param underWayMs - for which the claim outlives this process
 * @returns undefined: there is none; `answered`: it was answered here, as the first time
 * @throws InferenceError 409, 429, 503
 */
export async function claimKey(
  call: KeyedCall | undefined,
  reply: FastifyReply,
  answers: Pick<KeptAnswers, 'claim' | 'keep' | 'spend' | 'release'>,
  log: Log,
  underWayMs?: number,
): Promise<ClaimedKey | undefined | 'answered'> {
  if (call === undefined) return undefined;
  const claim = await answers.claim(call, underWayMs);
  switch (claim.kind) {
    case 'claimed':
      return new ClaimedKey(call, answers, log);
    case 'answered':
      sendAgain(reply, claim.answer);
      return 'answered';
    case 'other_call':
      throw otherBody();
    case 'under_way':
      throw conflict('the call of this Idempotency-Key is under way', SOON);
    case 'not_kept':
      throw conflict('the answer of this Idempotency-Key was given, and is not kept: streams and large answers', FINAL);
    case 'too_many':
      throw new InferenceError(
        429,
        'rate_limit_exceeded',
        'this workspace has as many idempotency keys as it may have',
        {
          headers: FINAL,
        },
      );
    default:
      throw unavailable('idempotency keys are not kept now');
  }
}

/** Sends an answer as it was given before. */
export function sendAgain(reply: FastifyReply, { status, headers, body }: KeptAnswer): void {
  void reply
    .code(status ?? 200)
    .headers({ ...headers, 'idempotency-replayed': 'true' })
    .send(body);
}

const conflict = (text: string, headers: Readonly<Record<string, string>>): InferenceError =>
  new InferenceError(409, 'conflict', text, { headers });
