/**
 * The turn of this machine to pull an image, which the scheduler gives: the machines of an installation stand in line
 * for a registry. Must stay true: a machine that has a place in a line begins without its turn only when no scheduler
 * has answered for minutes, because all machines that wait would else begin at once when a scheduler restarts.
 */
import { sleep } from '#shared/backoff.ts';
import { turnText } from '#shared/domain/pull-turns.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { RegistryAuth } from '../containers/runtime.ts';

/** The scheduler's answer to a machine that wants to pull. */
export interface PullPermit {
  /** Wait before the next question: it is not this machine's turn. */
  readonly waitMs: number;
  /** Place in the line, from 1, and the machines in it; 0 or absent: not known. */
  readonly place?: number;
  readonly waiting?: number;
  readonly auth: RegistryAuth | undefined;
  /** Place of an image that Longshore built behind the registry port; empty: no registry has it. */
  readonly builtFrom?: string;
  /** Mirror of the image's registry, which is asked for the layers first; empty: there is none. */
  readonly mirror?: string;
  /** Whether the credentials go to the mirror, too. */
  readonly mirrorAuth?: boolean;
  /** Nothing on this machine needs the image any more. */
  readonly unwanted?: boolean;
  /** The scheduler could not be asked; a registry that requires credentials may get them at the next try. */
  readonly unasked?: boolean;
}

/** The state of this machine's pull, which the question says. */
export interface Asking {
  /** Whether this machine waited in the line before. */
  readonly hasWaited?: boolean;
  /** Whether the pull is under way, so that its permit is renewed. */
  readonly pulling?: boolean;
}

export interface TurnSettings {
  /** Longest time in a line. */
  readonly turnMs: number;
  /** Time without an answer of a scheduler after which a machine in a line begins by itself. */
  readonly aloneMs: number;
  /** Pause between two questions that nobody answers. */
  readonly unansweredMs: number;
}

export interface TurnsParts {
  readonly permit: (reference: string, workspaceId: string, asking: Asking) => Promise<PullPermit>;
  readonly settings: TurnSettings;
  readonly log: Log;
}

const RENEW_MS = 20_000;

export class PullTurns {
  readonly #parts: TurnsParts;

  constructor(parts: TurnsParts) {
    this.#parts = parts;
  }

  /**
   * Returns when this machine may pull.
   * @param tell - called with a sentence on the place in the line
   * @throws AppError `registry_busy` when the wait was too long, or nothing needs the image any more
   */
  async next(
    reference: string,
    workspaceId: string,
    tell: (text: string) => void,
    signal: AbortSignal,
  ): Promise<PullPermit> {
    const { permit, settings } = this.#parts;
    const from = performance.now();
    let answeredMs = from;
    for (let hasWaited = false; ; hasWaited = true) {
      if (signal.aborted) throw notNeeded(reference);
      const answer = await permit(reference, workspaceId, { hasWaited });
      const { waitMs, place = 0, waiting = 0, unasked = false, unwanted = false } = answer;
      const nowMs = performance.now();
      if (unwanted) throw notNeeded(reference);
      const isAnswered = !unasked && (waitMs <= 0 || place > 0);
      if (isAnswered) answeredMs = nowMs;
      if (waitMs <= 0 && (!unasked || !hasWaited)) return answer;
      // The scheduler, or its line, has not answered for minutes: the line spares the registry and protects nothing.
      if (nowMs - answeredMs >= settings.aloneMs) return { waitMs: 0, auth: undefined, unasked: true };
      if (nowMs - from >= settings.turnMs)
        throw new AppError(
          'registry_busy',
          `image ${reference} waited ${Math.round(settings.turnMs / 60_000)} minutes for its turn to be pulled${place > 0 ? `, and is at place ${place} of ${waiting}` : ''}; other machines pull it: let more at once (LONGSHORE_IMAGE_PULLS), or give the pool a mirror of the registry`,
        );
      tell(turnText(reference, place, waiting));
      await sleep(unasked ? settings.unansweredMs * (0.75 + Math.random() / 2) : waitMs, signal);
    }
  }

  /** Keeps the permit while a pull is under way. @returns a function that ends this */
  keep(reference: string, workspaceId: string): () => void {
    const { permit, log } = this.#parts;
    const timer = setInterval(() => {
      permit(reference, workspaceId, { pulling: true }).catch((error: unknown) =>
        log.info({ err: error, image: reference }, 'pull permit not renewed'),
      );
    }, RENEW_MS);
    return () => clearInterval(timer);
  }
}

export const notNeeded = (reference: string): AppError =>
  new AppError('registry_busy', `image ${reference} is not needed on this machine any more`);
