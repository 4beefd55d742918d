/**
 * The lines of machines that want to pull an image. A registry serves a bounded number of machines at once, and the
 * others wait in the order in which they asked. The order is in Redis, so that it survives a reconnecting agent, a
 * replica that ends and a change of the leader. A question is held here until it is the machine's turn.
 * Invariant: within a minute a machine that stops asking loses its place, and one that stops renewing its permit.
 */
import type { Redis } from 'ioredis';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Bus } from '../../cluster/bus.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import type { Script } from '../../stores/queues/scripts.ts';
import { defineScript } from '../../stores/queues/scripts.ts';

export interface PullLineSettings {
  /** Machines that may pull an image at once before the first of them has it. */
  readonly width: number;
  /** Bound on the machines that pull an image at once. */
  readonly widthMost: number;
  readonly permitMs: number;
  readonly placeMs: number;
  /** Time after which a pull counts as slow: another machine may begin beside it. */
  readonly slowMs: number;
  /** Time for which a machine that got the image widens the line by one. */
  readonly servedMs: number;
  /** Time between two looks at a line, for permits that lapse and messages that are lost. */
  readonly lookMs: number;
}

export const PULL_LINE: PullLineSettings = {
  width: 8,
  widthMost: 64,
  permitMs: 60_000,
  placeMs: 60_000,
  slowMs: 5 * 60_000,
  servedMs: 60 * 60_000,
  lookMs: 1000,
};

/** `wait`: the place counts from 1 among `waiting` machines; 0: not known, because Redis did not answer. */
export type Turn =
  | { readonly kind: 'pull' }
  | { readonly kind: 'wait'; readonly place: number; readonly waiting: number };

export interface PullLinesParts {
  readonly client: Redis;
  readonly keys: Pick<Keys, 'pullLine' | 'pullLinesChannel'>;
  readonly bus: Pick<Bus, 'on' | 'publish'>;
  readonly settings: PullLineSettings;
  readonly log: Log;
}

/** A machine's question that is held here. */
interface Asker {
  /** Whether nobody waits for the image on that machine yet. */
  readonly isAhead: boolean;
  turn: Turn | undefined;
  isDue: boolean;
  readonly end: (turn: Turn) => void;
}

interface Line {
  readonly askers: Map<MachineId, Asker>;
  timer: NodeJS.Timeout | undefined;
  looking: boolean;
  lookAgain: boolean;
}

/** Time for an answer of Redis to a question whose wait is over. */
const REDIS_MS = 2000;

const NOT_KNOWN: Turn = { kind: 'wait', place: 0, waiting: 0 };

export class PullLines {
  readonly #parts: PullLinesParts;
  readonly #script: Script;
  readonly #lines = new Map<string, Line>();

  constructor(parts: PullLinesParts) {
    this.#parts = parts;
    this.#script = defineScript(parts.client, 'longshorePullLine');
    parts.bus.on(parts.keys.pullLinesChannel, (image) => {
      if (typeof image === 'string' && this.#lines.has(image)) void this.#look(image);
    });
  }

  /**
   * Takes a machine's place in the line, or keeps its present one.
   * @param waitMs - how long the answer may take when it is not the machine's turn
   * @param isAhead - whether nobody waits for the image there yet: the machine stands behind all others
   * @param signal - aborted when nobody waits for the answer any more; the place stays for a while
   * @returns once it is the machine's turn, or at the end of the wait
   */
  ask(
    image: string,
    machineId: MachineId,
    waitMs: number,
    { isAhead = false, signal }: { readonly isAhead?: boolean; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<Turn> {
    const line = this.#lines.get(image) ?? { askers: new Map(), timer: undefined, looking: false, lookAgain: false };
    this.#lines.set(image, line);
    // The machine has asked anew, so nobody hears the answer to its question before.
    line.askers.get(machineId)?.end(NOT_KNOWN);
    return new Promise((resolve) => {
      const due = setTimeout(() => {
        asker.isDue = true;
        // The first look may still be under way; Redis may not answer at all.
        if (asker.turn === undefined) late = setTimeout(onLeft, REDIS_MS);
        else onLeft();
      }, waitMs);
      let late: NodeJS.Timeout | undefined;
      const onLeft = (): void => asker.end(asker.turn ?? NOT_KNOWN);
      const asker: Asker = {
        isAhead,
        turn: undefined,
        isDue: false,
        end: (turn) => {
          clearTimeout(due);
          clearTimeout(late);
          signal?.removeEventListener('abort', onLeft);
          if (line.askers.get(machineId) === asker) line.askers.delete(machineId);
          resolve(turn);
        },
      };
      if (signal?.aborted === true) {
        asker.end(NOT_KNOWN);
        return;
      }
      signal?.addEventListener('abort', onLeft, { once: true });
      line.askers.set(machineId, asker);
      void this.#look(image);
    });
  }

  /** Keeps the permit of a machine that pulls, whether or not it has one: the pull is under way. */
  async hold(image: string, machineId: MachineId): Promise<void> {
    await this.#run(image, 'hold', [machineId]);
  }

  /** Keeps the permit of a machine that has one. */
  async keep(image: string, machineId: MachineId): Promise<void> {
    await this.#run(image, 'keep', [machineId]);
  }

  /**
   * Gives a machine's permit or place back.
   * @param how - `pulled`: the machine has the image now; `again`: it asks again soon, before those that asked later
   */
  async leave(image: string, machineId: MachineId, how: 'pulled' | 'again' | 'done'): Promise<void> {
    await this.#run(image, how, [machineId]);
    this.#parts.bus.publish(this.#parts.keys.pullLinesChannel, image);
    if (this.#lines.has(image)) await this.#look(image);
  }

  /** Asks for all machines that wait here; one look at a time for an image. */
  async #look(image: string): Promise<void> {
    const line = this.#lines.get(image);
    if (line === undefined) return;
    if (line.looking) {
      line.lookAgain = true;
      return;
    }
    line.looking = true;
    clearTimeout(line.timer);
    const asked = [...line.askers];
    try {
      const [waiting = 0, ...places] = await this.#run(
        image,
        'ask',
        asked.map(([machineId, { isAhead }]) => `${isAhead ? '-' : '+'}${machineId}`),
      );
      for (const [at, [, asker]] of asked.entries()) {
        const place = places[at] ?? 0;
        asker.turn = place === 0 ? { kind: 'pull' } : { kind: 'wait', place, waiting };
      }
    } catch (error) {
      this.#parts.log.info({ err: error, image }, 'the line of a pull could not be asked for, trying again');
    }
    for (const [, asker] of asked) {
      if (asker.turn?.kind === 'pull' || asker.isDue) asker.end(asker.turn ?? NOT_KNOWN);
    }
    line.looking = false;
    if (line.askers.size === 0) this.#lines.delete(image);
    else if (line.lookAgain) {
      line.lookAgain = false;
      await this.#look(image);
    } else {
      line.timer = setTimeout(() => void this.#look(image), this.#parts.settings.lookMs);
      line.timer.unref();
    }
  }

  async #run(
    image: string,
    step: 'ask' | 'hold' | 'keep' | 'again' | 'done' | 'pulled',
    machines: readonly string[],
  ): Promise<readonly number[]> {
    const { keys, settings } = this.#parts;
    const { width, widthMost, permitMs, placeMs, slowMs, servedMs } = settings;
    const answer = await this.#script.run(
      ...keys.pullLine(image),
      ...[width, Math.max(width, widthMost), permitMs, placeMs, slowMs, servedMs],
      step,
      ...machines,
    );
    return Array.isArray(answer) ? answer.map(Number) : [];
  }
}
