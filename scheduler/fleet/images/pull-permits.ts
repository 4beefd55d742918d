import type { Redis } from 'ioredis';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Keys } from '../../stores/queues/keys.ts';
import type { Script } from '../../stores/queues/scripts.ts';
import { defineScript } from '../../stores/queues/scripts.ts';

/** Permits that bound the machines which pull one image at once, across all replicas; a permit expires by itself. */
export class PullPermits {
  readonly #client: Redis;
  readonly #keys: Keys;
  readonly #take: Script;

  constructor(client: Redis, keys: Keys) {
    this.#client = client;
    this.#keys = keys;
    this.#take = defineScript(client, 'longshoreTakePullPermit');
  }

  /** Takes a permit, or keeps the machine's present one. @returns whether the machine has one */
  async take(image: string, machineId: MachineId, width: number, holdMs: number): Promise<boolean> {
    return (await this.#take.run(this.#keys.pulls(image), machineId, width, holdMs)) === 1;
  }

  async give(image: string, machineId: MachineId): Promise<void> {
    await this.#client.zrem(this.#keys.pulls(image), machineId);
  }
}
