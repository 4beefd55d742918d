/**
 * Finds out whether running containers still reach their GPUs: a `systemctl daemon-reload` takes devices from
 * containers that have them by NVIDIA's hook. Owned by gpus.ts, which asks for a round after each look. Must stay true:
 * a container with devices by CDI keeps them and is not asked; one query at a time runs in a container.
 */
import type { Log } from '#shared/log.ts';
import { hasLostAccess } from './parse.ts';

/** About half an hour of rounds. */
const MOST_ROUNDS_NOT_ASKED = 64;

/** `cannot`: the container has no tool to ask · `never`: its devices cannot be taken away */
export type Inside = { readonly kind: 'said'; readonly text: string } | { readonly kind: 'cannot' | 'never' };

export interface AccessParts {
  readonly running: () => readonly { readonly containerId: string; readonly dockerId: string }[];
  /** Output of the GPU tool inside a container; runs a program there, at the cost of its memory. */
  readonly askInside: (dockerId: string) => Promise<Inside>;
  readonly onLost: (containerId: string) => void;
  readonly log: Log;
}

export class Access {
  readonly #parts: AccessParts;
  readonly #asking = new Set<string>();
  /** Containers that rest: rounds until the next query, and the length of the next rest. */
  readonly #notAsked = new Map<string, { left: number; next: number }>();

  constructor(parts: AccessParts) {
    this.#parts = parts;
  }

  /**
   * Asks each running container. A container whose query fails or hangs rests ever longer: each hanging query leaves a
   * process there that does not end.
   */
  round(): void {
    const { running, askInside, onLost, log } = this.#parts;
    const now = running();
    for (const dockerId of [...this.#notAsked.keys()])
      if (!now.some((one) => one.dockerId === dockerId)) this.#notAsked.delete(dockerId);
    for (const { containerId, dockerId } of now) {
      const waits = this.#notAsked.get(dockerId);
      if (waits !== undefined && waits.left > 0) waits.left -= 1;
      if (this.#asking.has(dockerId) || (waits?.left ?? 0) > 0) continue;
      this.#asking.add(dockerId);
      askInside(dockerId)
        .then((inside) => {
          this.#notAsked.delete(dockerId);
          if (inside.kind === 'never')
            this.#notAsked.set(dockerId, { left: Number.POSITIVE_INFINITY, next: Number.POSITIVE_INFINITY });
          if (inside.kind === 'said' && hasLostAccess(inside.text)) onLost(containerId);
        })
        .catch((error: unknown) => {
          const rounds = Math.min(MOST_ROUNDS_NOT_ASKED, waits?.next ?? 2);
          this.#notAsked.set(dockerId, { left: rounds, next: rounds * 2 });
          log.info({ err: error, containerId, rounds }, 'GPU access in a container not looked at');
        })
        .finally(() => this.#asking.delete(dockerId));
    }
  }
}
