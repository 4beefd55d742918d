/**
 * Makes sure that images are on this machine. Called before a container is created, and for images that will be needed
 * soon. Must stay true: one pull per image at a time, for any number of callers. An incomplete pull, or one with other
 * bytes than requested, never counts as success. Credentials stay in memory, for one pull.
 */
import { isRegistryPortReference, madeBaseVersion } from '#shared/domain/built-images.ts';
import { isAgentsImageName } from '#shared/domain/guarded-images.ts';
import { isImageId, registryOf } from '#shared/domain/image-reference.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { BuiltImages } from './built.ts';
import type { BackoffSettings } from './backoff.ts';
import { RegistryBackoff } from './backoff.ts';
import type { PullFailure } from './failures.ts';
import { imageFailure, isTransient, PULL_CURES } from './failures.ts';
import type { Pulled } from './ledger.ts';
import { DiskWasLow, failed, failureOf, isTurnLost } from './pull-errors.ts';
import type { ImageRights } from './rights.ts';
import { PullSlots } from './slots.ts';
import { Transfer } from './transfer.ts';
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

const NEVER = new AbortController().signal;

export class Images {
  readonly #parts: ImagesParts;
  readonly #slots: PullSlots;
  readonly #backoff: RegistryBackoff;
  readonly #turns: PullTurns;
  readonly #transfer: Transfer;
  readonly #flights = new Map<string, Flight>();

  constructor(parts: ImagesParts) {
    this.#parts = parts;
    this.#slots = new PullSlots(parts.settings.atOnce);
    this.#backoff = new RegistryBackoff(parts.settings);
    this.#turns = new PullTurns(parts);
    this.#transfer = new Transfer({ ...parts, isDiskLow: () => this.#isDiskLow() });
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
      const how = await this.#transfer.run(reference, workspaceId, permit, deadline, tell);
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
