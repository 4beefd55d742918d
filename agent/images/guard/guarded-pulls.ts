/**
 * The engine's calls about images, with the guard before those that ask a registry for a tenant. The engine itself asks
 * the registries that the operator named. The agent asks all others, and the engine pulls their images through the
 * agent's proxy on loopback. Must stay true: for the rest of the agent such an image has its own name and digest.
 */
import { withDeadline } from '#shared/backoff.ts';
import { recordTag } from '#shared/domain/guarded-images.ts';
import { digestOf, repositoryOf, tagOf } from '#shared/domain/image-reference.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { ContainerRuntime, PullOptions, RegistryAuth } from '../../containers/runtime.ts';
import { EngineError } from '../../containers/runtime.ts';
import { classifyPull, tooLarge } from '../failures.ts';
import type { RegistryGuard } from '../registry-guard.ts';
import type { PullProxy } from './pull-proxy.ts';
import type { PullSession } from './pull-session.ts';
import { RecordedImages } from './recorded-images.ts';
import { Routes } from './routes.ts';
import type { RoutesParts } from './routes.ts';

const SILENCE_MS = 60_000;

type Calls = Pick<ContainerRuntime, 'pull' | 'registryDigest' | 'image' | 'removeImage' | 'tagImage'>;

export interface GuardedParts extends RoutesParts {
  readonly guard: Pick<RegistryGuard, 'isOperators' | 'require' | 'addressesOf'>;
  /** Undefined: the engine does not reach the agent's loopback, and asks registries itself. */
  readonly proxy: () => PullProxy | undefined;
}

export function withGuardedPulls<Runtime extends Calls>(runtime: Runtime, parts: GuardedParts): Runtime {
  const pulls = new GuardedPulls(runtime, parts);
  const recorded = new RecordedImages(runtime, (reference) => parts.guard.isOperators(reference));
  return {
    ...runtime,
    pull: (reference, options) => pulls.pull(reference, options),
    registryDigest: (reference, auth, deadlineMs) => pulls.registryDigest(reference, auth, deadlineMs),
    image: (reference) => recorded.image(reference),
    removeImage: (reference) => recorded.removeImage(reference),
  };
}

class GuardedPulls {
  readonly #runtime: Calls;
  readonly #parts: GuardedParts;
  readonly #routes: Routes;

  constructor(runtime: Calls, parts: GuardedParts) {
    this.#runtime = runtime;
    this.#parts = parts;
    this.#routes = new Routes(parts);
  }

  async pull(reference: string, options: PullOptions): Promise<string> {
    const { guard } = this.#parts;
    // No tenant names a mirror, or the port of built images.
    if (options.isOperators === true || guard.isOperators(reference))
      return await this.#runtime.pull(reference, options);
    await guard.require(reference);
    const proxy = this.#parts.proxy();
    if (proxy === undefined) return await this.#runtime.pull(reference, options);
    const { maxBytes = Number.POSITIVE_INFINITY } = options;
    const client = await this.#routes.clientOf(reference, options);
    let session: PullSession | undefined;
    try {
      // The registry is asked with the credentials of this pull, even when the engine has the digest already.
      const { digest, ...first } = await client.resolve();
      session = proxy.open({
        client,
        digest,
        first,
        maxBytes,
        tooLarge: (bytes) => tooLarge(reference, bytes, maxBytes),
      });
      await this.#through(session, reference, digest, options);
      return digest;
    } catch (error) {
      throw session === undefined ? error : causeOf(error, session, reference, options.signal);
    } finally {
      client.close();
      session?.close();
    }
  }

  /** Has the engine pull from the proxy, and names the image as the rest of the agent knows it. */
  async #through(session: PullSession, reference: string, digest: string, options: PullOptions): Promise<void> {
    const name = `${session.name}@${digest}`;
    try {
      const signal = AbortSignal.any([options.signal, session.signal]);
      await this.#runtime.pull(name, { ...options, auth: undefined, signal });
      const facts = await this.#runtime.image(name);
      if (facts === undefined) throw new Error('the engine has no such image after the pull');
      // The record comes first, because a tag without it would look like an image of this machine.
      await this.#runtime.tagImage(facts.id, repositoryOf(reference), recordTag(digest));
      if (digestOf(reference) === '') await this.#runtime.tagImage(facts.id, repositoryOf(reference), tagOf(reference));
    } finally {
      await this.#runtime.removeImage(name).catch(() => undefined);
    }
  }

  async registryDigest(reference: string, auth: RegistryAuth | undefined, deadlineMs: number): Promise<string> {
    const { guard, proxy } = this.#parts;
    if (guard.isOperators(reference)) return await this.#runtime.registryDigest(reference, auth, deadlineMs);
    await guard.require(reference);
    if (proxy() === undefined) return await this.#runtime.registryDigest(reference, auth, deadlineMs);
    const signal = AbortSignal.timeout(deadlineMs);
    const client = await this.#routes.clientOf(reference, { auth, silenceMs: SILENCE_MS, signal });
    try {
      return await withDeadline(client.digest(), deadlineMs, () => new Error('i/o timeout'));
    } catch (error) {
      if (error instanceof AppError) throw error;
      const message = `cannot ask the registry for image ${reference}: ${messageOf(error)}`;
      throw new EngineError('refused', message, { cause: error });
    } finally {
      client.close();
    }
  }
}

/** The cause of a failed pull: the engine knows the proxy alone, and the agent knows what it met at the registry. */
function causeOf(error: unknown, session: PullSession, reference: string, signal: AbortSignal): unknown {
  if (signal.aborted || (error instanceof EngineError && error.failure === 'unavailable')) return error;
  if (session.failure !== undefined) return session.failure;
  const words = withoutProxy(messageOf(error), session.name, reference);
  const failure = classifyPull(words);
  if (failure === 'disk_full' || failure === 'engine') return new Error(words, { cause: error });
  if (session.lastError !== undefined) return session.lastError;
  if (!session.wasAsked)
    return new EngineError(
      'unavailable',
      `the engine does not reach the agent's pull proxy on loopback (${words}); set LONGSHORE_AGENT_PULL_ADDRESS=off if it runs elsewhere`,
      { cause: error },
    );
  // The engine shares the download of a layer between pulls, and the path of another pull may be gone.
  if (failure === 'not_found' || failure === 'unauthorized')
    return new Error('the pull ended before it was complete', { cause: error });
  return new Error(words, { cause: error });
}

/** Words of the engine with the image's own repository in place of the proxy's path. */
function withoutProxy(words: string, proxied: string, reference: string): string {
  const slash = proxied.indexOf('/');
  const [host, path] = [proxied.slice(0, slash), proxied.slice(slash + 1)];
  return words.replaceAll(proxied, repositoryOf(reference)).replaceAll(host, 'the registry').replaceAll(path, '…');
}
