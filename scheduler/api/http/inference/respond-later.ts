// `Prefer: respond-async`: a call of a model is accepted, and answered 202 with the task that will have its answer. It
// passes the same checks as a call that is answered at once. Source: reference of the inference API, §6; RFC 7240.
// Invariants: the call is durable before its caller is told of it. A key stands for one call, also after a kill.
import { createHash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { newId } from '#shared/domain/ids.ts';
import type { TaskId, WorkspaceId } from '#shared/domain/ids.ts';
import type { AppError } from '#shared/errors.ts';
import type { LastingHolds } from '../../../domain/inference.ts';
import type { KeptAnswer, KeptAnswers, KeyedCall } from '../../../stores/queues/kept-answers.ts';
import { DEFERRED_WAIT_MS, mayBeAccepted } from '../../../tasks/deferred-calls/deferred-calls.ts';
import type { DeferredCalls } from '../../../tasks/deferred-calls/deferred-calls.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { putByOf } from '../../../workspaces/identity/confinement.ts';
import { chargeRequestOf, mostTokensOf } from './call.ts';
import type { ExchangeParts } from './call.ts';
import { affinityOf } from './exchange.ts';
import type { DeferredRequest } from './deferred-call.ts';
import { InferenceError } from './errors.ts';
import { unavailable } from './failures.ts';
import { holdCost, takeRate } from './hold-cost.ts';
import { claimKey, otherBody, sendAgain } from './keyed-call.ts';
import type { Prepared, Route } from './prepared.ts';

/** Largest body of a call that is answered later: its row keeps it. */
export const MOST_DEFERRED_BYTES = 4 * 1024 * 1024;

/** Time for which a key is taken whose scheduler dies before the call is committed. */
const CLAIM_MS = 30_000;

export interface RespondLaterParts extends Pick<ExchangeParts, 'charging' | 'rates' | 'log'> {
  readonly deferred: Pick<DeferredCalls, 'accept' | 'ofKey'>;
  readonly holds: Pick<LastingHolds, 'handOver' | 'giveBack'>;
  readonly keptAnswers: Pick<KeptAnswers, 'claim' | 'keep' | 'spend' | 'release'>;
  /** Absolute URL of a task. */
  readonly taskUrlOf: (request: FastifyRequest, workspaceId: WorkspaceId, taskId: TaskId) => string;
  readonly wallMs: () => number;
}

export interface LaterCall {
  readonly requestId: string;
  readonly caller: Caller;
  /** As it was asked for: a call of a custom route may be one of a chat model. */
  readonly route: Route;
  readonly prepared: Prepared;
  /** undefined: the request has no key. */
  readonly keyed: KeyedCall | undefined;
}

/** Whether a request prefers to be answered later. Other preferences and parameters are passed over. */
export function prefersLater(header: string | readonly string[] | undefined): boolean {
  const text = (typeof header === 'string' ? header : (header ?? []).join(',')).replaceAll(/"(?:[^"\\]|\\.)*"/g, '');
  return text.split(',').some((preference) => /^\s*respond-async\s*(?:;|$)/i.test(preference));
}

/** @throws InferenceError */
export async function respondLater(
  call: LaterCall,
  request: FastifyRequest,
  reply: FastifyReply,
  parts: RespondLaterParts,
): Promise<void> {
  const { caller, keyed } = call;
  const body = request.body instanceof Uint8Array ? Buffer.from(request.body).toString('utf8') : '';
  if (Buffer.byteLength(body) > MOST_DEFERRED_BYTES)
    throw new InferenceError(
      413,
      'request_too_large',
      `a call with Prefer: respond-async has a body of at most ${MOST_DEFERRED_BYTES} bytes`,
    );
  const keyHash = keyed && createHash('sha256').update(keyed.key).digest('base64url');
  const answerOf = (taskId: TaskId): KeptAnswer =>
    accepted(parts.taskUrlOf(request, caller.workspaceId, taskId), taskId);
  /** @returns whether the key stands for an earlier call, whose task is told again */
  const isKnown = async (): Promise<boolean> => {
    const known = keyHash === undefined ? undefined : await parts.deferred.ofKey(caller.tokenId, keyHash);
    if (known === undefined) return false;
    if (known.fingerprint !== keyed?.fingerprint) throw otherBody();
    sendAgain(reply, answerOf(known.taskId));
    return true;
  };
  if (await isKnown()) return;
  const key = await claimKey(keyed, reply, parts.keptAnswers, parts.log, CLAIM_MS);
  if (key === 'answered') return;
  const taskId = newId<TaskId>();
  try {
    if (await accept(call, { taskId, keyHash, body }, request, reply, parts)) {
      const answer = answerOf(taskId);
      await key?.keep(answer);
      return void reply.code(202).headers(answer.headers).send(answer.body);
    }
    await key?.release();
  } catch (error) {
    await key?.release();
    throw mayBeAccepted(error) ? unsure(answerOf(taskId), taskId, keyed !== undefined, error) : error;
  }
  // The key was claimed anew after Redis had lost it.
  if (!(await isKnown())) throw unavailable('the call was not accepted: send it again');
}

/**
 * @returns false: the key stands for another call
 * @throws InferenceError, and nothing is held then; AppError `database_outcome_unknown`: the call may be accepted, so
 * that its hold stays until it lapses
 */
async function accept(
  { requestId, caller, route, prepared, keyed }: LaterCall,
  { taskId, keyHash, body }: { readonly taskId: TaskId; readonly keyHash: string | undefined; readonly body: string },
  request: FastifyRequest,
  reply: FastifyReply,
  { charging, holds, rates, deferred, wallMs }: RespondLaterParts,
): Promise<boolean> {
  const used = await takeRate(reply, rates, caller.workspaceId, mostTokensOf(prepared));
  const charge = chargeRequestOf(prepared, requestId, caller);
  const affinity = affinityOf(request);
  const what: DeferredRequest = {
    route,
    model: prepared.model.name,
    caller,
    ...(affinity === undefined ? {} : { affinity: affinity.slice(0, MOST_AFFINITY) }),
  };
  let isAccepted = false;
  let isUnknown = false;
  let isHeld = false;
  try {
    await holdCost(charging, charge);
    // The replica that carries the call out may be this one, and takes the hold over at once. A call that is free holds
    // nothing while it waits.
    isHeld = charge.isCharged;
    if (isHeld) holds.handOver(requestId);
    else await holds.giveBack(charge);
    const nowMs = wallMs();
    const outcome = await deferred.accept({
      taskId,
      workspaceId: caller.workspaceId,
      tokenId: caller.tokenId,
      requestId,
      keyHash,
      fingerprint: keyed?.fingerprint ?? '',
      putBy: putByOf(caller),
      request: what,
      charge,
      isCharged: charge.isCharged,
      body,
      createdAtMs: nowMs,
      expiresAtMs: nowMs + DEFERRED_WAIT_MS,
    });
    isAccepted = outcome.kind === 'accepted';
    if (outcome.kind === 'overloaded') throw unavailable('tasks do not reach the database: try again');
    if (outcome.kind === 'too_many_calls')
      throw tooMany(`${outcome.most} calls that wait or run with Prefer: respond-async`);
    if (outcome.kind === 'too_many_bytes')
      throw tooMany(`${outcome.most} bytes of calls that wait or run with Prefer: respond-async`);
    return isAccepted;
  } catch (error) {
    isUnknown = mayBeAccepted(error);
    throw error;
  } finally {
    const isRefused = !isAccepted && !isUnknown;
    if (isRefused) used(0);
    if (isHeld && isRefused) await holds.giveBack(charge);
  }
}

const MOST_AFFINITY = 256;

const tooMany = (what: string): InferenceError =>
  new InferenceError(429, 'rate_limit_exceeded', `this workspace has ${what}, as many as it may have`, {
    headers: { 'retry-after': '5' },
  });

/** With a key, a second try is the same call. Without one, clients must not try again by themselves. */
const unsure = ({ headers }: KeptAnswer, taskId: TaskId, hasKey: boolean, cause: AppError): InferenceError =>
  new InferenceError(
    503,
    cause.code,
    hasKey
      ? 'the database did not answer whether the call is accepted: send it again with the same Idempotency-Key'
      : `the database did not answer whether the call is accepted: read the task ${taskId} before you send it again`,
    {
      headers: {
        'x-task-id': taskId,
        ...(headers['location'] === undefined ? {} : { location: headers['location'] }),
        ...(hasKey ? { 'retry-after': '1' } : { 'x-should-retry': 'false' }),
      },
      cause,
    },
  );

const accepted = (url: string, taskId: TaskId): KeptAnswer => ({
  status: 202,
  headers: {
    'content-type': 'application/json; charset=utf-8',
    'preference-applied': 'respond-async',
    'x-task-id': taskId,
    location: url,
  },
  body: JSON.stringify({ id: taskId, status: 'queued', url }),
});
