/**
 * Makes sure that images are on this machine. Called before a container is created, and for images that will be needed
 * soon. Must stay true: one pull per image at a time, for any number of callers. An incomplete pull, or one with other
 * bytes than requested, never counts as success. Credentials stay in memory, for one pull.
 */
import { sleep } from '#shared/backoff.ts';
import { isBuiltImage, isRegistryPortReference, setUpImageVersion } from '#shared/domain/built-images.ts';
import { digestOf, registryOf } from '#shared/domain/image-reference.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { Limiter } from '../containers/limiter.ts';
import type { ContainerRuntime, RegistryAuth } from '../containers/runtime.ts';
import { EngineError } from '../containers/runtime.ts';
import type { BuiltImages } from './built.ts';
import type { BackoffSettings } from './backoff.ts';
import { RegistryBackoff } from './backoff.ts';
import type { PullFailure } from './failures.ts';
import type { Pulled } from './ledger.ts';
import { classifyPull, isTransient, PULL_CURES } from './failures.ts';
import type { PullProgress } from '../containers/pull-stream.ts';
import type { ImageRights } from './rights.ts';

export interface PullSettings extends BackoffSettings {
  readonly atOnce: number;
  readonly tries: number;
  /** A pull without any progress message for this long has failed. */
  readonly silenceMs: number;
  /** Bound on all tries and waits together. */
  readonly totalMs: number;
}

export const PULL_SETTINGS: PullSettings = {
  atOnce: 3,
  tries: 5,
  silenceMs: 120_000,
  totalMs: 30 * 60_000,
  baseMs: 2000,
  capMs: 120_000,
};

/** The scheduler's answer to a machine that wants to pull. */
export interface PullPermit {
  /** Wait before the next question: enough machines pull this image already. */
  readonly waitMs: number;
  readonly auth: RegistryAuth | undefined;
  /** Place of an image that Longshore built behind the registry port; empty: no registry has it. */
  readonly builtFrom?: string;
  /** The scheduler could not be asked; a registry that requires credentials may get them at the next try. */
  readonly unasked?: boolean;
}

/** The registry requires credentials, and the scheduler, which has them, could not be asked. */
class NotAsked extends Error {
  override readonly name = 'NotAsked';
}

/** An image that Longshore built is neither here nor in a registry. */
class NotKept extends Error {
  override readonly name = 'NotKept';
}

export interface ImagesParts {
  readonly runtime: Pick<ContainerRuntime, 'image' | 'pull'>;
  /** Asks whether this machine may pull now; repeated during the pull, which keeps its place. */
  readonly permit: (reference: string, workspaceId: string) => Promise<PullPermit>;
  readonly release: (reference: string) => void;
  /** Frees room. @returns whether something was removed */
  readonly makeRoom: () => Promise<boolean>;
  /** Called when there is no room and none could be freed. */
  readonly onFull: () => void;
  readonly onUsed: (reference: string) => void;
  readonly onPulled: (reference: string, how: Pulled) => Promise<void>;
  readonly rights: Pick<ImageRights, 'require'>;
  readonly built: Pick<BuiltImages, 'host' | 'adopt'>;
  readonly metrics: ImageMetrics;
  readonly log: Log;
  readonly settings: PullSettings;
}

/** The metrics that are set here. */
export interface ImageMetrics {
  pullEnded(result: 'ok' | PullFailure, seconds: number): void;
  pullBytes(bytes: number): void;
  pullsActive(change: 1 | -1): void;
}

export type OnProgress = (text: string) => void;

/** An image that the engine has. */
export interface Present {
  /** The engine's id of it, which its name may leave later. */
  readonly id: string;
  readonly was: 'present' | 'pulled';
}

interface Flight {
  readonly workspaceId: string;
  readonly done: Promise<string>;
  readonly listeners: Set<OnProgress>;
  text: string;
}

const RENEW_MS = 20_000;
const LOG_EVERY_MS = 10_000;
const TELL_EVERY_MS = 1000;

export class Images {
  readonly #parts: ImagesParts;
  readonly #limit: Limiter;
  readonly #backoff: RegistryBackoff;
  readonly #flights = new Map<string, Flight>();

  constructor(parts: ImagesParts) {
    this.#parts = parts;
    this.#limit = new Limiter(parts.settings.atOnce);
    this.#backoff = new RegistryBackoff(parts.settings);
  }

  /** References in a pull, or waiting for one. */
  get pulling(): ReadonlySet<string> {
    return new Set(this.#flights.keys());
  }

  /**
   * @param onProgress - called when the image is absent, with a sentence on the progress of its pull
   * @param workspaceId - the workspace that needs the image; absent: the agent itself, which may use every image
   * @throws AppError `image_error` naming the image; `disk_full` when this machine has no room for it
   */
  async ensure(reference: string, onProgress: OnProgress, workspaceId = ''): Promise<Present> {
    const { runtime, rights, onUsed } = this.#parts;
    if (isRegistryPortReference(reference))
      throw new AppError('image_error', `image ${reference} is the agent's own: name it as its build did`);
    onUsed(reference);
    for (;;) {
      if (!this.#flights.has(reference)) {
        const facts = await runtime.image(reference);
        if (facts !== undefined) {
          if (workspaceId !== '') {
            // An id of the engine, or a part of one, names images of every workspace.
            if (facts.builtFor !== '' && facts.builtFor !== workspaceId)
              throw new AppError('image_error', `image ${reference} was built for another workspace`);
            await rights.require(reference, facts, workspaceId);
          }
          return { id: facts.id, was: 'present' };
        }
      }
      const version = setUpImageVersion(reference);
      if (version !== undefined)
        throw new AppError(
          'image_error',
          `this machine has no image of Python ${version}: set-up made its base images (longshore-python), since no registry was reached. ` +
            'Name a version that it has, or a base_image, or set LONGSHORE_BASE_IMAGE=python:{version}-slim for images of a registry',
        );
      const flight = this.#flights.get(reference) ?? this.#begin(reference, workspaceId);
      const isOwn = flight.workspaceId === workspaceId;
      flight.listeners.add(onProgress);
      onProgress(flight.text);
      try {
        const id = await flight.done;
        if (isOwn) return { id, was: 'pulled' };
      } catch (error) {
        // The failed pull used another workspace's credentials: this one's may succeed.
        if (isOwn) throw error;
      } finally {
        flight.listeners.delete(onProgress);
      }
    }
  }

  #begin(reference: string, workspaceId: string): Flight {
    const listeners = new Set<OnProgress>();
    const tell = (text: string): void => {
      flight.text = text;
      for (const listener of listeners) listener(text);
    };
    const done = this.#limit
      .run(() => this.#pull(reference, workspaceId, tell))
      .finally(() => {
        this.#flights.delete(reference);
      });
    const waits = this.#flights.size >= this.#parts.settings.atOnce;
    const text = waits ? `image ${reference} waits for other pulls of this machine` : `pulling image ${reference}`;
    const flight: Flight = { workspaceId, done, listeners, text };
    this.#flights.set(reference, flight);
    return flight;
  }

  /** @returns the engine's id of the image */
  async #pull(reference: string, workspaceId: string, tell: OnProgress): Promise<string> {
    const { metrics, log, settings, makeRoom, onFull, onPulled } = this.#parts;
    const registry = registryOf(reference);
    const deadline = AbortSignal.timeout(settings.totalMs);
    const from = performance.now();
    const seconds = (): number => (performance.now() - from) / 1000;
    let roomMade = false;
    metrics.pullsActive(1);
    try {
      for (let tries = 1; ; tries += 1) {
        try {
          await this.#backoff.pass(registry, deadline);
          const how = await this.#attempt(reference, workspaceId, deadline, tell);
          this.#backoff.worked(registry);
          metrics.pullEnded('ok', seconds());
          log.info({ image: reference, durationMs: Math.round(seconds() * 1000), tries }, 'image pulled');
          await onPulled(reference, how);
          return how.imageId;
        } catch (error) {
          const failure = failureOf(error);
          metrics.pullEnded(failure, seconds());
          const again = await this.#again(failure, tries, roomMade, deadline, makeRoom);
          roomMade ||= failure === 'disk_full';
          log.info({ image: reference, err: error, failure, tries, again }, 'image pull failed');
          if (failure === 'disk_full' && !again) onFull();
          if (!again) throw failed(reference, failure, error, deadline.aborted);
          if (failure !== 'disk_full') this.#backoff.failed(registry);
          tell(`image ${reference}: pull ${tries} of ${settings.tries} failed (${messageOf(error)}), trying again`);
        }
      }
    } finally {
      metrics.pullsActive(-1);
    }
  }

  /** After a full disk, tries once more if room was freed. */
  async #again(
    failure: PullFailure,
    tries: number,
    roomMade: boolean,
    deadline: AbortSignal,
    makeRoom: () => Promise<boolean>,
  ): Promise<boolean> {
    if (deadline.aborted) return false;
    if (failure === 'disk_full') return !roomMade && (await makeRoom());
    return isTransient(failure) && tries < this.#parts.settings.tries;
  }

  async #attempt(reference: string, workspaceId: string, deadline: AbortSignal, tell: OnProgress): Promise<Pulled> {
    const { runtime, metrics, log, settings, release } = this.#parts;
    const permit = await this.#permitted(reference, workspaceId, deadline, tell);
    const { unasked } = permit;
    const from = this.#place(reference, permit);
    const { auth } = from;
    const renewal = setInterval(() => void this.#renew(reference, workspaceId), RENEW_MS);
    let bytes = 0;
    let loggedMs = performance.now();
    let toldMs = 0;
    const onProgress = (progress: PullProgress): void => {
      metrics.pullBytes(Math.max(0, progress.doneBytes - bytes));
      bytes = Math.max(bytes, progress.doneBytes);
      const nowMs = performance.now();
      if (nowMs - toldMs < TELL_EVERY_MS) return;
      toldMs = nowMs;
      tell(textOf(reference, progress));
      if (nowMs - loggedMs < LOG_EVERY_MS) return;
      loggedMs = nowMs;
      log.info({ image: reference, ...progress }, 'image pull goes on');
    };
    tell(`pulling image ${reference}`);
    try {
      const said = await runtime.pull(from.name, { auth, silenceMs: settings.silenceMs, signal: deadline, onProgress });
      const facts = await runtime.image(from.name);
      if (facts === undefined) throw new Error('the engine has no such image after the pull');
      const wanted = digestOf(from.name) || said;
      if (wanted === '' || !facts.digests.includes(wanted))
        throw new Error(
          `digest mismatch: ${wanted || 'none'} was pulled, the engine has ${facts.digests.join(' ') || 'none'}`,
        );
      // The scheduler lets a workspace name no built image but its own, so no registry has to be asked again.
      if (from.isBuilt) await this.#parts.built.adopt(from.name, facts.id, reference);
      return { private: auth !== undefined && !from.isBuilt, imageId: facts.id, workspaceId };
    } catch (error) {
      if (unasked === true && failureOf(error) === 'unauthorized')
        throw new NotAsked(`${messageOf(error)} (without credentials: the scheduler could not be asked for them)`, {
          cause: error,
        });
      throw error;
    } finally {
      clearInterval(renewal);
      release(reference);
    }
  }

  async #permitted(
    reference: string,
    workspaceId: string,
    deadline: AbortSignal,
    tell: OnProgress,
  ): Promise<PullPermit> {
    for (;;) {
      const permit = await this.#parts.permit(reference, workspaceId);
      const { waitMs } = permit;
      if (waitMs <= 0) return permit;
      tell(`image ${reference} waits: as many machines pull it as may at once`);
      if (!(await sleep(waitMs, deadline))) throw new Error('it waited too long for other machines');
    }
  }

  /** The name that is pulled for a reference, and its credentials. */
  #place(
    reference: string,
    { auth, builtFrom = '', unasked }: PullPermit,
  ): { readonly name: string; readonly auth: RegistryAuth | undefined; readonly isBuilt: boolean } {
    if (!isBuiltImage(reference)) return { name: reference, auth, isBuilt: false };
    if (unasked === true) throw new NotAsked('the scheduler could not be asked for the place of the image');
    const { host } = this.#parts.built;
    if (builtFrom === '' || auth === undefined || host === undefined)
      throw new NotKept(
        `image ${reference} was built on a machine, is not here, and this machine gets it from no registry; a container that wants it has it built again`,
      );
    return { name: `${host}/${builtFrom}`, auth: { ...auth, serverAddress: host }, isBuilt: true };
  }

  async #renew(reference: string, workspaceId: string): Promise<void> {
    try {
      await this.#parts.permit(reference, workspaceId);
    } catch (error) {
      this.#parts.log.info({ err: error, image: reference }, 'pull permit not renewed');
    }
  }
}

function failureOf(error: unknown): PullFailure {
  if (error instanceof NotAsked) return 'busy';
  if (error instanceof NotKept) return 'not_found';
  if (error instanceof EngineError && error.failure === 'unavailable') return 'engine';
  return classifyPull(messageOf(error));
}

function failed(reference: string, failure: PullFailure, error: unknown, late: boolean): AppError {
  if (error instanceof NotKept) return new AppError('image_error', error.message, { cause: error });
  const why = late ? `it was not here after ${PULL_SETTINGS.totalMs / 60_000} minutes` : messageOf(error);
  const text = `cannot pull image ${reference}: ${why} (${failure}); ${PULL_CURES[failure]}`;
  return failure === 'disk_full'
    ? new AppError('disk_full', text, { cause: error })
    : new AppError('image_error', text, { cause: error });
}

const MB = 1_000_000;

function textOf(reference: string, { doneBytes, totalBytes, layersDone, layers }: PullProgress): string {
  const amount = totalBytes > 0 ? `, ${Math.floor(doneBytes / MB)} of ${Math.ceil(totalBytes / MB)} MB` : '';
  return `pulling image ${reference}: ${layersDone} of ${layers} layers${amount}`;
}
