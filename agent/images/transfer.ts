/**
 * Has the engine pull an image once: from a mirror first, and with a look at the disk and at the bytes meanwhile.
 * Called by `Images`, which tries again. Must stay true: an image counts as pulled only with the digest that was
 * asked for.
 */
import { repeat } from '#shared/backoff.ts';
import { isBuiltImage } from '#shared/domain/built-images.ts';
import { digestOf, pathOf, repositoryOf, withTag } from '#shared/domain/image-reference.ts';
import { messageOf } from '#shared/errors.ts';
import type { PullProgress } from '../containers/pull-stream.ts';
import type { RegistryAuth } from '../containers/runtime.ts';
import { tooLarge } from './failures.ts';
import type { ImagesParts, OnProgress } from './images.ts';
import type { Pulled } from './ledger.ts';
import { DiskWasLow, failureOf, NotAsked, NotKept, NotUsable } from './pull-errors.ts';
import type { PullPermit } from './turns.ts';

const ASK_REGISTRY_MS = 8_000;
/** A shorter time than any disk takes to lose its last tenth, and to get it back. */
const LOOK_AT_DISK_MS = 100;
const LOG_EVERY_MS = 10_000;
const TELL_EVERY_MS = 1000;

/** The name of an image at a mirror of its registry. Pure. */
export const mirroredName = (reference: string, mirror: string): string =>
  `${mirror}/${pathOf(reference)}${withTag(reference).slice(repositoryOf(reference).length)}`;

export type TransferParts = Pick<
  ImagesParts,
  'runtime' | 'metrics' | 'log' | 'settings' | 'built' | 'isDiskFull' | 'maxBytes'
> & { readonly isDiskLow: () => Promise<boolean> };

export class Transfer {
  readonly #parts: TransferParts;

  constructor(parts: TransferParts) {
    this.#parts = parts;
  }

  /**
   * Pulls an image once.
   * @param tell - called with a sentence on the progress
   * @throws what `failureOf` has a class for
   */
  async run(
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
   * Looks until the signal aborts. An engine that extracts a layer may say nothing meanwhile.
   * @param onFull - called when the disk has no more room for a pull
   */
  #watchDisk(signal: AbortSignal, onFull: () => void): { readonly wasLow: boolean } {
    const seen = { wasLow: false };
    const look = async (): Promise<void> => {
      const isLow = await this.#parts.isDiskLow();
      seen.wasLow ||= isLow;
      if (isLow && (await this.#parts.isDiskFull())) onFull();
    };
    void repeat(LOOK_AT_DISK_MS, signal, look, () => undefined);
    return seen;
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

const MB = 1_000_000;

function textOf(reference: string, { doneBytes, totalBytes, layersDone, layers }: PullProgress): string {
  const amount = totalBytes > 0 ? `, ${Math.floor(doneBytes / MB)} of ${Math.ceil(totalBytes / MB)} MB` : '';
  return `pulling image ${reference}: ${layersDone} of ${layers} layers${amount}`;
}
