// How far the jobs of accepted tasks have come into Redis. Each scheduler process writes a time here, now and then: the
// jobs of all tasks that it accepted before are added. When it dies, the leader looks at later tasks only, and goes on
// writing the time, to which a commit may come two minutes late (maintenance/missing-jobs.ts). The marks lie
// beside the jobs, because a Redis that comes back older then has older marks, too. The field `rows` says that the rows
// of all tasks were looked at since Redis was empty; whoever notices a loss of data removes it.
import type { Redis } from 'ioredis';
import type { InstanceId } from '#shared/domain/ids.ts';
import type { Keys } from './keys.ts';

const ROWS = 'rows';

export interface Marks {
  /** Whether every row was looked at since data were lost. */
  readonly rowsChecked: boolean;
  /** Epoch milliseconds by process; its earlier tasks have their jobs. */
  readonly addedTo: ReadonlyMap<InstanceId, number>;
}

export class AddedMarks {
  readonly #redis: Redis;
  readonly #key: string;

  constructor(redis: Redis, keys: Pick<Keys, 'added'>) {
    this.#redis = redis;
    this.#key = keys.added;
  }

  async write(instance: InstanceId, addedToMs: number): Promise<void> {
    await this.#redis.hset(this.#key, instance, Math.floor(addedToMs));
  }

  async read(): Promise<Marks> {
    const { [ROWS]: rows, ...addedTo } = await this.#redis.hgetall(this.#key);
    const entries = Object.entries(addedTo).map(([instance, at]) => [instance as InstanceId, Number(at)] as const);
    return { rowsChecked: rows !== undefined, addedTo: new Map(entries) };
  }

  async forget(instances: readonly InstanceId[]): Promise<void> {
    if (instances.length > 0) await this.#redis.hdel(this.#key, ...instances);
  }

  async rowsChecked(): Promise<void> {
    await this.#redis.hset(this.#key, ROWS, 1);
  }

  /** Redis may have lost jobs: every row must be looked at. */
  async rowsDoubtful(): Promise<void> {
    await this.#redis.hdel(this.#key, ROWS);
  }
}
