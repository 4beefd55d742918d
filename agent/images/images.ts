/**
 * Makes sure that images are on this machine. Called before a container is created, and for images that will be needed
 * soon. Must stay true: one pull per image at a time, for any number of callers. An incomplete pull, or one with other
 * bytes than requested, never counts as success. Credentials stay in memory, for one pull.
 */
import { isBuiltImage, isRegistryPortReference, madeBaseVersion } from '#shared/domain/built-images.ts';
import { isAgentsImageName } from '#shared/domain/guarded-images.ts';
import { digestOf, isImageId, pathOf, registryOf, repositoryOf, withTag } from '#shared/domain/image-reference.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import { repeat } from '#shared/backoff.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerRuntime, RegistryAuth } from '../containers/runtime.ts';
import { EngineError } from '../containers/runtime.ts';
import type { BuiltImages } from './built.ts';
import type { BackoffSettings } from './backoff.ts';
import { RegistryBackoff } from './backoff.ts';
import type { PullFailure } from './failures.ts';
import type { Pulled } from './ledger.ts';
import { classifyPull, imageFailure, isTransient, PULL_CURES, tooLarge } from './failures.ts';
import type { PullProgress } from '../containers/pull-stream.ts';
import type { ImageRights } from './rights.ts';
import { PullSlots } from './slots.ts';
import { notNeeded, PullTurns } from './turns.ts';
import type { PullPermit, TurnsParts, TurnSettings } from './turns.ts';

export interface PullSettings extends BackoffSettings, TurnSettings {
  /** Pulls of this machine at once. */
  readonly atOnce: number;
  readonly tries: number;
  /** A pull without any progress message for this long has failed. */
  readonly silenceMs: number;
  /** The same of a mirror, after which the registry itself is asked. */
  readonly mirrorSilenceMs: number;
  /** Bound on the time in which the image is pulled, all tries together; waits between them are outside of it. */
  readonly totalMs: number;
}

export const PULL_SETTINGS: PullSettings = {
  atOnce: 4,
  tries: 5,
  silenceMs: 120_000,
  mirrorSilenceMs: 20_000,
  totalMs: 30 * 60_000,
  baseMs: 2000,
  capMs: 120_000,
  turnMs: 4 * 3600_000,
  aloneMs: 5 * 60_000,
  unansweredMs: 2000,
};

const TRIES_UNREACHABLE = 2;

/** The name of an image at a mirror of its registry. Pure. */
export const mirroredName = (reference: string, mirror: string): string =>
  `${mirror}/${pathOf(reference)}${withTag(reference).slice(repositoryOf(reference).length)}`;

/** The registry requires credentials, and the scheduler, which has them, could not be asked. */
class NotAsked extends Error {
  override readonly name = 'NotAsked';
}

/** A pull found too little room on the disk of images; the engine removes an incomplete layer at once. */
class DiskWasLow extends Error {
  override readonly name = 'DiskWasLow';
}

/** An image that Longshore built is neither here nor in a registry. */
class NotKept extends Error {
  override readonly name = 'NotKept';
}

/** An image that was pulled and is above a bound. */
class NotUsable extends Error {
  override readonly name = 'NotUsable';
}

export interface ImagesParts {
  readonly runtime: Pick<ContainerRuntime, 'image' | 'pull' | 'registryDigest' | 'removeImage'>;
  /** Asks whether this machine may pull now; repeated during the pull, which keeps its permit. */
  readonly permit: TurnsParts['permit'];
  /** Gives the permit back. */
  readonly release: (reference: string, end: PullEnd) => void;
  /** Whether the disk of images has too little room now. */
  readonly isDiskLow: () => Promise<boolean>;
  /** Whether a pull that goes on would take the last room of the disk. */
  readonly isDiskFull: () => Promise<boolean>;
  /** Bound on the bytes of an image, as its registry sends it and unpacked. */
  readonly maxBytes: () => Promise<number>;
  /** Frees room. @returns whether something was removed */
  readonly makeRoom: () => Promise<boolean>;
  /** Called when there is no room and none could be freed. */
  readonly onFull: () => void;
  readonly onUsed: (reference: string) => void;
  readonly onPulled: (reference: string, how: Pulled) => Promise<void>;
  readonly rights: Pick<ImageRights, 'require'>;
  readonly built: Pick<BuiltImages, 'host' | 'adopt'>;
  /** Makes the base image of a Python version on this machine. @returns the engine's id of it */
  readonly makeBase: (version: string, tell: OnProgress) => Promise<string>;
  readonly metrics: ImageMetrics;
  readonly log: Log;
  readonly settings: PullSettings;
}

/** `again`: this machine will ask anew soon, and is not to stand at the end of the line for it. */
export type PullEnd = 'pulled' | 'again' | 'failed';

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
  /** Ends the pull, when nothing needs the image any more. */
  readonly abort: AbortController;
  text: string;
}

const ASK_REGISTRY_MS = 8_000;
const NEVER = new AbortController().signal;
/** A shorter time than any disk takes to lose its last tenth, and to get it back. */
const LOOK_AT_DISK_MS = 100;
const LOG_EVERY_MS = 10_000;
const TELL_EVERY_MS = 1000;

export class Images {
  readonly #parts: ImagesParts;
  readonly #slots: PullSlots;
  readonly #backoff: RegistryBackoff;
  readonly #turns: PullTurns;
  readonly #flights = new Map<string, Flight>();

  constructor(parts: ImagesParts) {
    this.#parts = parts;
    this.#slots = new PullSlots(parts.settings.atOnce);
    this.#backoff = new RegistryBackoff(parts.settings);
    this.#turns = new PullTurns(parts);
  }

  /** References in a pull, or waiting for one. */
  get pulling(): ReadonlySet<string> {
    return new Set(this.#flights.keys());
  }

  /**
   * @param onProgress - called when the image is absent, with a sentence on the progress of its pull
   * @param workspaceId - the workspace that needs the image; absent: the agent itself, which may use every image
   * @param signal - aborted when the caller needs the image no more; a pull that nobody needs ends
   * @throws AppError `image_error` naming the image; `registry_busy` when its registry does not serve this machine now;
   * `disk_full` when this machine has no room for it; EngineError when the engine does not answer
   */
  async ensure(
    reference: string,
    onProgress: OnProgress,
    workspaceId = '',
    signal: AbortSignal = NEVER,
  ): Promise<Present> {
    const { runtime, rights, onUsed } = this.#parts;
    if (isRegistryPortReference(reference) || isAgentsImageName(reference))
      throw new AppError('image_error', `image ${reference} is the agent's own: name it as its build did`);
    // An id, or the first digits of one, finds images of every workspace.
    if (workspaceId !== '' && isImageId(reference))
      throw new AppError('image_error', `image ${reference} could be an id: name it with a tag, such as name:latest`);
    onUsed(reference);
    for (;;) {
      if (!this.#flights.has(reference)) {
        const facts = await runtime.image(reference);
        if (facts !== undefined) {
          if (facts.configProblem !== undefined)
            throw new AppError('image_error', `image ${reference} ${facts.configProblem}`);
          if (workspaceId !== '') {
            // An id of the engine, or a part of one, names images of every workspace.
            if (facts.builtFor !== '' && facts.builtFor !== workspaceId)
              throw new AppError('image_error', `image ${reference} was built for another workspace`);
            await rights.require(reference, facts, workspaceId);
          }
          return { id: facts.id, was: 'present' };
        }
      }
      const flight = this.#flights.get(reference) ?? this.#begin(reference, workspaceId);
      // The callers of this pull have gone, and it ends now.
      if (flight.abort.signal.aborted) {
        await untilAborted(flight.done, signal).catch(() => undefined);
        if (signal.aborted) throw notNeeded(reference);
        continue;
      }
      // No credentials make a base image, so that its outcome is everybody's.
      const isOwn = flight.workspaceId === workspaceId || madeBaseVersion(reference) !== undefined;
      flight.listeners.add(onProgress);
      onProgress(flight.text);
      try {
        const id = await untilAborted(flight.done, signal);
        if (isOwn) return { id, was: 'pulled' };
      } catch (error) {
        // The failed pull used another workspace's credentials: this one's may succeed.
        if (isOwn || signal.aborted) throw error;
      } finally {
        flight.listeners.delete(onProgress);
        if (flight.listeners.size === 0) flight.abort.abort();
      }
    }
  }

  #begin(reference: string, workspaceId: string): Flight {
    const listeners = new Set<OnProgress>();
    const tell = (text: string): void => {
      flight.text = text;
      for (const listener of listeners) listener(text);
    };
    const abort = new AbortController();
    const flight: Flight = {
      workspaceId,
      done: this.#get(reference, workspaceId, tell, abort.signal).finally(() => this.#flights.delete(reference)),
      listeners,
      abort,
      text: madeBaseVersion(reference) === undefined ? `pulling image ${reference}` : `making image ${reference}`,
    };
    this.#flights.set(reference, flight);
    return flight;
  }

  /** No registry is asked for a base image that machines make. One that is begun is made to its end. */
  async #get(reference: string, workspaceId: string, tell: OnProgress, signal: AbortSignal): Promise<string> {
    const version = madeBaseVersion(reference);
    if (version === undefined) return await this.#pull(reference, workspaceId, tell, signal);
    // The flight is in the map before its first sentence.
    await Promise.resolve();
    if (await this.#parts.isDiskFull()) {
      const text = `cannot make image ${reference}: the disk of images is full; ${PULL_CURES.disk_full}`;
      throw imageFailure('disk_full', text, undefined);
    }
    return await this.#parts.makeBase(version, tell);
  }

  /** @returns the engine's id of the image */
  async #pull(reference: string, workspaceId: string, tell: OnProgress, signal: AbortSignal): Promise<string> {
    const { metrics, log, settings, makeRoom, onFull, onPulled } = this.#parts;
    const registry = registryOf(reference);
    const from = performance.now();
    const seconds = (): number => (performance.now() - from) / 1000;
    const time = { leftMs: settings.totalMs };
    let roomMade = false;
    metrics.pullsActive(1);
    try {
      // The flight is in the map before its first sentence.
      await Promise.resolve();
      for (let tries = 1; ; tries += 1) {
        try {
          await this.#backoff.pass(registry, AbortSignal.any([signal, AbortSignal.timeout(settings.totalMs)]));
          const how = await this.#attempt(
            reference,
            workspaceId,
            { time, isLast: tries >= settings.tries },
            tell,
            signal,
          );
          this.#backoff.worked(registry);
          metrics.pullEnded('ok', seconds());
          log.info({ image: reference, durationMs: Math.round(seconds() * 1000), tries }, 'image pulled');
          await onPulled(reference, how);
          return how.imageId;
        } catch (error) {
          const isLate = time.leftMs <= 0;
          const failure = await this.#failureOf(error);
          metrics.pullEnded(failure, seconds());
          const again = !isLate && !signal.aborted && (await this.#again(error, failure, tries, roomMade, makeRoom));
          roomMade ||= failure === 'disk_full';
          log.info({ image: reference, err: error, failure, tries, again }, 'image pull failed');
          if (failure === 'disk_full' && !again) onFull();
          if (!again) throw failed(reference, failure, error, isLate ? settings.totalMs : undefined);
          if (failure !== 'disk_full') this.#backoff.failed(registry);
          tell(`image ${reference}: pull ${tries} of ${settings.tries} failed (${messageOf(error)}), trying again`);
        }
      }
    } finally {
      metrics.pullsActive(-1);
    }
  }

  /** The engine's words alone prove no full disk: the disk was low during the pull, or is now. */
  async #failureOf(error: unknown): Promise<PullFailure> {
    if (error instanceof DiskWasLow) return 'disk_full';
    const failure = failureOf(error);
    return failure === 'disk_full' && !(await this.#isDiskLow()) ? 'engine' : failure;
  }

  /**
   * Looks until the signal aborts. An engine that extracts a layer may say nothing meanwhile.
   * @param onFull - called when the disk has no more room for a pull
   */
  #watchDisk(signal: AbortSignal, onFull: () => void): { readonly wasLow: boolean } {
    const seen = { wasLow: false };
    const look = async (): Promise<void> => {
      const isLow = await this.#isDiskLow();
      seen.wasLow ||= isLow;
      if (isLow && (await this.#parts.isDiskFull())) onFull();
    };
    void repeat(LOOK_AT_DISK_MS, signal, look, () => undefined);
    return seen;
  }

  #isDiskLow(): Promise<boolean> {
    return this.#parts.isDiskLow().catch(() => false);
  }

  /** After a full disk, tries once more if room was freed. A turn that did not come is not waited for again. */
  async #again(
    error: unknown,
    failure: PullFailure,
    tries: number,
    roomMade: boolean,
    makeRoom: () => Promise<boolean>,
  ): Promise<boolean> {
    const { settings } = this.#parts;
    if (isTurnLost(error)) return false;
    if (failure === 'disk_full') return !roomMade && (await makeRoom());
    // Another machine may reach the registry, and a name that is misspelt is nowhere.
    const most = failure === 'unreachable' ? Math.min(TRIES_UNREACHABLE, settings.tries) : settings.tries;
    return isTransient(failure) && tries < most;
  }

  /** @param time - what is left of the time for the pull, which counts from the moment at which it begins */
  async #attempt(
    reference: string,
    workspaceId: string,
    { time, isLast }: { readonly time: { leftMs: number }; readonly isLast: boolean },
    tell: OnProgress,
    signal: AbortSignal,
  ): Promise<Pulled> {
    const { release } = this.#parts;
    const { permit, giveBack } = await this.#begins(reference, workspaceId, tell, signal);
    const endKeeping = this.#turns.keep(reference, workspaceId);
    const from = performance.now();
    let end: PullEnd = 'failed';
    try {
      const deadline = AbortSignal.any([signal, AbortSignal.timeout(time.leftMs)]);
      const how = await this.#transfer(reference, workspaceId, permit, deadline, tell);
      end = 'pulled';
      return how;
    } catch (error) {
      if (!isLast && !signal.aborted && isTransient(failureOf(error))) end = 'again';
      throw error;
    } finally {
      time.leftMs = Math.max(0, Math.floor(time.leftMs - (performance.now() - from)));
      giveBack();
      endKeeping();
      release(reference, end);
    }
  }

  /**
   * Waits for the machine's turn and for a place on this machine. It holds neither while it waits for the other: a turn
   * that finds no place is given back, and comes again before those that asked later.
   */
  async #begins(
    reference: string,
    workspaceId: string,
    tell: OnProgress,
    signal: AbortSignal,
  ): Promise<{ readonly permit: PullPermit; readonly giveBack: () => void }> {
    for (;;) {
      if (!this.#slots.isFree(workspaceId)) tell(`image ${reference} waits for other pulls of this machine`);
      await this.#slots.untilFree(workspaceId, signal);
      const permit = await this.#turns.next(reference, workspaceId, tell, signal).catch((error: unknown) => {
        this.#parts.release(reference, 'failed');
        throw error;
      });
      const giveBack = this.#slots.take(workspaceId);
      if (giveBack !== undefined) return { permit, giveBack };
      this.#parts.release(reference, 'again');
    }
  }

  async #transfer(
    reference: string,
    workspaceId: string,
    permit: PullPermit,
    deadline: AbortSignal,
    tell: OnProgress,
  ): Promise<Pulled> {
    const { runtime, metrics, log, settings } = this.#parts;
    const { unasked } = permit;
    const from = this.#place(reference, permit);
    const { auth } = from;
    const maxBytes = from.isBuilt ? Number.POSITIVE_INFINITY : await this.#parts.maxBytes();
    const ended = new AbortController();
    const signal = AbortSignal.any([deadline, ended.signal]);
    const end = (why: Error): void => ended.abort(why);
    let bytes = 0;
    let loggedMs = performance.now();
    let toldMs = 0;
    const over = new AbortController();
    const disk = this.#watchDisk(over.signal, () =>
      end(new DiskWasLow('the pull was ended, because the disk of images has no more room')),
    );
    const onProgress = (progress: PullProgress): void => {
      // The engine itself asks some registries, and only its progress tells how large their images are.
      if (progress.totalBytes > maxBytes) end(tooLarge(reference, progress.totalBytes, maxBytes));
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
    const mirrored = from.isBuilt ? undefined : await this.#fromMirror(reference, permit, signal, onProgress);
    try {
      const said = await runtime.pull(from.name, {
        auth,
        silenceMs: settings.silenceMs,
        signal,
        onProgress,
        maxBytes,
        isOperators: from.isBuilt,
      });
      const facts = await runtime.image(from.name);
      if (facts === undefined) throw new Error('the engine has no such image after the pull');
      if (facts.configProblem !== undefined) {
        // The engine reads it for each list of images.
        await runtime.removeImage(from.name);
        throw new NotUsable(`image ${reference} ${facts.configProblem}`);
      }
      if (facts.bytes > maxBytes) {
        await runtime.removeImage(from.name);
        throw tooLarge(reference, facts.bytes, maxBytes);
      }
      const wanted = digestOf(from.name) || said;
      if (wanted === '' || !facts.digests.includes(wanted))
        throw new Error(
          `digest mismatch: ${wanted || 'none'} was pulled, the engine has ${facts.digests.join(' ') || 'none'}`,
        );
      // The scheduler lets a workspace name no built image but its own, so no registry has to be asked again.
      if (from.isBuilt) await this.#parts.built.adopt(from.name, facts.id, reference);
      return { private: auth !== undefined && !from.isBuilt, imageId: facts.id, workspaceId };
    } catch (error) {
      if (ended.signal.aborted && !deadline.aborted) throw ended.signal.reason;
      if (unasked === true && failureOf(error) === 'unauthorized')
        throw new NotAsked(`${messageOf(error)} (without credentials: the scheduler could not be asked for them)`, {
          cause: error,
        });
      if (disk.wasLow && failureOf(error) === 'disk_full') throw new DiskWasLow(messageOf(error), { cause: error });
      throw error;
    } finally {
      over.abort();
      if (mirrored !== undefined) await runtime.removeImage(mirrored).catch(() => undefined);
    }
  }

  /**
   * Fetches the layers of an image from the mirror of its registry, once the registry has answered for the image: it
   * alone says what the name means and who may have it. An engine may know the digest from before and ask nobody. The
   * pull from the registry that follows finds the layers here. A mirror that fails or lacks the image costs no more.
   * @returns the name under which the image is here now
   */
  async #fromMirror(
    reference: string,
    { mirror = '', mirrorAuth = false, auth }: PullPermit,
    deadline: AbortSignal,
    onProgress: (progress: PullProgress) => void,
  ): Promise<string | undefined> {
    if (mirror === '') return undefined;
    const { runtime, settings, log } = this.#parts;
    const name = mirroredName(reference, mirror);
    const signal = AbortSignal.any([deadline, AbortSignal.timeout(settings.totalMs / 2)]);
    const given = mirrorAuth && auth !== undefined ? { ...auth, serverAddress: mirror } : undefined;
    try {
      await runtime.registryDigest(reference, auth, ASK_REGISTRY_MS);
      await runtime.pull(name, {
        auth: given,
        silenceMs: settings.mirrorSilenceMs,
        signal,
        onProgress,
        isOperators: true,
      });
      return name;
    } catch (error) {
      log.info({ err: error, image: reference, mirror }, 'an image is not pulled from the mirror');
      return undefined;
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
}

/** The promise's value; a signal that aborts ends the wait for it. */
async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal === NEVER) return await work;
  let onAbort = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(new AppError('registry_busy', 'the image is not needed any more'));
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

const isTurnLost = (error: unknown): error is AppError => error instanceof AppError && error.code === 'registry_busy';

function failureOf(error: unknown): PullFailure {
  if (error instanceof NotAsked || isTurnLost(error)) return 'busy';
  if (error instanceof AppError && error.code === 'registry_unreachable') return 'unreachable';
  if (error instanceof NotKept) return 'not_found';
  if (error instanceof NotUsable) return 'bad_manifest';
  if (error instanceof EngineError && error.failure === 'unavailable') return 'engine';
  return classifyPull(messageOf(error));
}

/** @param lateMs - time in which the image was not here, when that ended the pull */
function failed(reference: string, failure: PullFailure, error: unknown, lateMs: number | undefined): Error {
  if (isTurnLost(error)) return error;
  if (error instanceof NotKept || error instanceof NotUsable)
    return new AppError('image_error', error.message, { cause: error });
  // A pull that is too slow is the registry's, or the network's.
  const why = lateMs === undefined ? failure : failure === 'disk_full' ? failure : 'busy';
  const words = lateMs === undefined ? messageOf(error) : `it was not here after ${minutes(lateMs)} of pulling`;
  return imageFailure(why, `cannot pull image ${reference}: ${words} (${why}); ${PULL_CURES[why]}`, error);
}

const minutes = (ms: number): string => `${Math.round(ms / 60_000)} minutes`;

const MB = 1_000_000;

function textOf(reference: string, { doneBytes, totalBytes, layersDone, layers }: PullProgress): string {
  const amount = totalBytes > 0 ? `, ${Math.floor(doneBytes / MB)} of ${Math.ceil(totalBytes / MB)} MB` : '';
  return `pulling image ${reference}: ${layersDone} of ${layers} layers${amount}`;
}
