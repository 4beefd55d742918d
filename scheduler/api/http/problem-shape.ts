// The shape of an answer to a request that no route took (an unknown address, one that cannot be read, a drain): that
// of the surface below which its address lies, since its client reads no other.
import type { FastifyReply } from 'fastify';
import { GATEWAY_BASE, sendRpc } from './bind.ts';
import { rpcCodeOf, sendProblem, withRetryAfter } from './error-map.ts';
import type { Problem } from './error-map.ts';
import { ofProblem, sendError } from './inference/errors.ts';
import { HOST_BASE } from './invoke/host-form.ts';
import { isInvoked } from './invoke/kinds.ts';
import { sendProblem as sendToCaller } from './invoke/refusal.ts';

/** The first part of an address below which ports of containers are called. */
const CONTAINERS = 'sandbox';

export function sendInShape(reply: FastifyReply, requestId: string, problem: Problem): void {
  const [path = ''] = reply.request.url.split('?', 1);
  const [, first = ''] = path.split('/', 2);
  if (first === 'v1') return sendError(reply, ofProblem(problem), requestId);
  if (isInvoked(first) || first === CONTAINERS || path.startsWith(`${HOST_BASE}/`))
    return sendToCaller(withRetryAfter(reply, problem), problem);
  if (path === GATEWAY_BASE || path.startsWith(`${GATEWAY_BASE}/`))
    sendRpc(withRetryAfter(reply, problem), rpcCodeOf(problem), problem.message);
  else sendProblem(reply, requestId, problem);
}
