// Asks the backends of a model in turn, until one answers. Another backend is asked only while no byte of an answer has
// come: a refusal of the request itself is the answer.
import type { Readable } from 'node:stream';
import type { ModelBackend } from '#shared/api/rest/models.ts';
import type { Log } from '#shared/log.ts';
import type { Target } from '../../../domain/stub-config.ts';
import { DEFAULT_CONTEXT_LENGTH } from '../../../domain/serving.ts';
import { calledBy } from '../../../tasks/admission/calls.ts';
import { AFFINITY_HEADER, servingCallOf } from '../../../tasks/serving/request.ts';
import type { Targets } from '../../../workspaces/deployments/targets.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { putByOf } from '../../../workspaces/identity/confinement.ts';
import { portsOf } from '../invoke/ports.ts';
import { BackendError, callDeployment } from '../streams/backend-call.ts';
import type { BackendAnswer, BackendCallParts } from '../streams/backend-call.ts';
import { backendOrder } from './choose-backend.ts';
import { uncompressed } from './compressed.ts';
import { InferenceError } from './errors.ts';
import { ExternalError, KeyMissing } from './external.ts';
import type { ExternalServers } from './external.ts';
import {
  NOT_AVAILABLE,
  NOT_REACHED,
  backendFailed,
  failureOf,
  mayFallBack,
  refusalOf,
  unavailable,
} from './failures.ts';
import type { JsonDocument } from './fields.ts';
import type { CallFacts } from './prepared.ts';
import type { RouteReason } from './route-event.ts';

export interface BackendsParts extends BackendCallParts {
  readonly targets: Pick<Targets, 'byName'>;
  readonly external: Pick<ExternalServers, 'call'>;
  readonly random: () => number;
  readonly log: Log;
}

/** An answer of a backend, whichever was asked. */
interface Answered extends BackendAnswer {
  /** Version of the deployment that answered; absent: another server. */
  readonly version?: number;
}

export interface Asked extends Answered {
  /** Why this backend answers. */
  readonly route: RouteReason;
}

/** Kind of a deployment that a backend names without one. */
const DEFAULT_KIND = 'asgi';
/** Largest refusal of a backend that is read. */
const MOST_REFUSAL = 64 * 1024;
const REFUSAL_MS = 5_000;

export class Backends {
  readonly #parts: BackendsParts;

  constructor(parts: BackendsParts) {
    this.#parts = parts;
  }

  /**
   * Asks for an answer with a status below 300.
   * @param body - for a backend that has the model under that name
   * @param affinity - header with which the caller names its conversation
   * @param waitMs - until the head of the answer, at most
   * @throws InferenceError; the signal's reason
   */
  async ask(
    prepared: CallFacts,
    body: (servedName: string) => JsonDocument,
    caller: Caller,
    affinity: string | undefined,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<Asked> {
    const { model } = prepared;
    let last: InferenceError | undefined;
    for (const backend of backendOrder(model.backends, this.#parts.random)) {
      const sent = body(backend.served_model_name ?? model.name);
      try {
        const answer = await this.#askOne(backend, prepared, sent, caller, affinity, waitMs, signal);
        const route = last !== undefined ? 'fallback' : model.backends.length > 1 ? 'weight' : 'only';
        return { ...answer, route };
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof InferenceError)) throw error;
        if (!mayFallBack(error)) throw error;
        this.#parts.log.info(
          { err: error, model: model.name, kind: backend.kind },
          'a backend of a model gave no answer',
        );
        last ??= error;
      }
    }
    throw last ?? unavailable('the model has no backend');
  }

  async #askOne(
    backend: ModelBackend,
    prepared: CallFacts,
    sent: JsonDocument,
    caller: Caller,
    affinity: string | undefined,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<Answered> {
    const body = Buffer.from(sent.text, 'utf8');
    const accept = prepared.stream ? 'text/event-stream, application/json' : 'application/json';
    const answer = uncompressed(
      backend.kind === 'external'
        ? await this.#askExternal(backend, prepared, body, accept, caller, waitMs, signal)
        : await this.#askDeployment(backend, prepared, sent, body, accept, caller, affinity, signal),
    );
    if (answer.status >= 200 && answer.status < 300) return answer;
    const servedName = caller.workspaceId === prepared.model.workspaceId ? sent.value['model'] : undefined;
    throw refusalOf(answer.status, await beginOf(answer.body), typeof servedName === 'string' ? servedName : undefined);
  }

  async #askExternal(
    backend: ModelBackend,
    { model, path }: CallFacts,
    body: Buffer,
    accept: string,
    caller: Caller,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<Answered> {
    try {
      return await this.#parts.external.call(backend, model.workspaceId, path, body, accept, signal, waitMs);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof ExternalError) throw backendFailed(error.message, error);
      if (error instanceof KeyMissing)
        throw backendFailed(caller.workspaceId === model.workspaceId ? error.message : NOT_REACHED, error);
      throw error;
    }
  }

  async #askDeployment(
    backend: ModelBackend,
    { model, path }: CallFacts,
    sent: JsonDocument,
    body: Buffer,
    accept: string,
    caller: Caller,
    affinity: string | undefined,
    signal: AbortSignal,
  ): Promise<Answered> {
    const target = await this.targetOf(model.workspaceId, backend);
    const isOwn = caller.workspaceId === model.workspaceId;
    if (target === undefined || !target.active) throw unavailable(gone(backend, target, isOwn));
    const port = backend.deployment_kind === 'pod' ? (backend.port ?? portsOf(target)[0]) : undefined;
    if (backend.deployment_kind === 'pod' && (port === undefined || !portsOf(target).includes(port)))
      throw unavailable(isOwn ? `the pod ${target.deploymentName} has no such port` : NOT_AVAILABLE);
    // The stub knows what its container holds; the model's record only knows the length of a call.
    const llm = target.config.serving?.llm ?? {
      contextLength: model.details.contextLength ?? DEFAULT_CONTEXT_LENGTH,
    };
    const putBy = putByOf(caller);
    try {
      const answer = await callDeployment(
        {
          target,
          ...(port === undefined ? {} : { port }),
          path: `/v1${path}`,
          headers: [
            ['content-type', 'application/json'],
            ['accept', accept],
          ],
          body,
          call: {
            ...(putBy === undefined ? {} : { putBy }),
            ...calledBy(caller, target),
            serving: servingCallOf(sent.value, affinity, llm, target.config.autoscaler.tasksPerContainer),
          },
        },
        this.#parts,
        signal,
      );
      return { ...answer, version: target.version };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof BackendError) throw failureOf(error.why, isOwn, error.taskId);
      throw error;
    }
  }

  /** The deployment of a backend; undefined: there is none, or it is another server. */
  targetOf(
    owner: Target['workspaceId'],
    { kind, deployment = '', deployment_kind: deploymentKind = DEFAULT_KIND }: ModelBackend,
  ): Target | undefined | Promise<Target | undefined> {
    return kind === 'external' ? undefined : this.#parts.targets.byName(owner, deploymentKind, deployment, null);
  }
}

function gone(
  { deployment = '', deployment_kind: kind = DEFAULT_KIND }: ModelBackend,
  target: Target | undefined,
  isOwn: boolean,
): string {
  if (!isOwn) return NOT_AVAILABLE;
  return target === undefined
    ? `there is no deployment ${kind}/${deployment}`
    : `the deployment ${kind}/${deployment} is stopped`;
}

/** The begin of a refusal, within bounds of bytes and time. */
async function beginOf(body: Readable): Promise<string> {
  const late = setTimeout(() => body.destroy(), REFUSAL_MS);
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > MOST_REFUSAL) break;
      chunks.push(chunk);
    }
  } catch {
    // The part that came is read.
  } finally {
    clearTimeout(late);
    body.destroy();
  }
  return Buffer.concat(chunks).toString('utf8');
}

export { AFFINITY_HEADER };
