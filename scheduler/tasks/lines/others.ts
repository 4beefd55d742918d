// Lines of the other replicas, as they told last: how many tasks of each queue are open, how many wait, and since when
// the oldest does. A replica tells what changed twenty times a second, at once when a task is left waiting, and
// everything now and then.
import type { InstanceId, QueueName } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Bus } from '../../cluster/bus.ts';
import type { Head } from './choose.ts';
import type { Lines, OtherLines } from './lines.ts';

const TELL_MS = 50;
/** Rounds after which something is told in any case, so that silence shows; and after which everything is told. */
const SIGN_EVERY = 20;
const WHOLE_EVERY = 200;
/** Silence of a present replica after which its counts are no good. */
const STALE_MS = 2_000;
const MOST_IN_ONE = 1_000;

/** Queue, open tasks, those that wait, age of the oldest one in milliseconds. */
type Told = readonly [QueueName, number, number, number];
interface Message {
  readonly from: InstanceId;
  readonly told: readonly Told[];
  /** Whether queues that are not named here, and not in the rest of the same messages, have no tasks. */
  readonly begins?: true;
}

interface Count {
  readonly count: number;
  waiting: number;
  /** Monotonic milliseconds. */
  readonly headSinceMs: number;
}

interface Replica {
  heardAtMs: number;
  readonly queues: Map<QueueName, Count>;
}

export interface OthersParts {
  readonly bus: Bus;
  readonly channel: string;
  readonly instance: InstanceId;
  readonly lines: Pick<Lines, 'line' | 'count' | 'onChange'>;
  readonly isPresent: (replica: InstanceId) => boolean;
  /** Other replicas that are present. */
  readonly present: () => Iterable<InstanceId>;
  readonly staleMs?: number;
}

export class Others implements OtherLines {
  readonly name = 'counts of lines';
  readonly #parts: OthersParts;
  readonly #replicas = new Map<InstanceId, Replica>();
  /** Replicas whose tasks wait, by queue. */
  readonly #waiting = new Map<QueueName, Set<InstanceId>>();
  readonly #changed = new Set<QueueName>();
  readonly #toldWaiting = new Set<QueueName>();
  readonly #grown = new Listeners<[QueueName]>();
  #timer: NodeJS.Timeout | undefined;
  #rounds = 0;

  constructor(parts: OthersParts) {
    this.#parts = parts;
    parts.lines.onChange((queue) => this.#changed.add(queue));
    parts.bus.on(parts.channel, (message) => this.#heard(message as Message));
  }

  /** Told of a queue of which more tasks are open at another replica. */
  onGrown(listener: (queue: QueueName) => void): void {
    this.#grown.add(listener);
  }

  start(): void {
    this.#timer = setInterval(() => this.#tell(), TELL_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Tells the other replicas at once, and not with the next round, because a task here waits for a slot of theirs. */
  tellNow(queue: QueueName): void {
    const { bus, channel, instance: from } = this.#parts;
    if (this.#toldWaiting.has(queue)) return;
    this.#toldWaiting.add(queue);
    this.#changed.delete(queue);
    bus.publish(channel, { from, told: [this.#toldOf(queue)] } satisfies Message);
  }

  counts(queue: QueueName): { readonly count: number; readonly waiting: number } {
    let [count, waiting] = [0, 0];
    for (const [replica, { queues }] of this.#replicas) {
      const told = queues.get(queue);
      if (told === undefined || !this.#parts.isPresent(replica)) continue;
      count += told.count;
      waiting += told.waiting;
    }
    return { count, waiting };
  }

  *heads(queue: QueueName): Iterable<Head> {
    const nowMs = performance.now();
    for (const replica of this.#waiting.get(queue) ?? []) {
      const told = this.#replicas.get(replica)?.queues.get(queue);
      if (told !== undefined && told.waiting > 0 && this.#parts.isPresent(replica))
        yield { replica, ageMs: nowMs - told.headSinceMs };
    }
  }

  /** Notes that a slot is kept for one of the tasks that wait there. */
  roomKept(queue: QueueName, replica: InstanceId): void {
    const told = this.#replicas.get(replica)?.queues.get(queue);
    if (told !== undefined) told.waiting = Math.max(0, told.waiting - 1);
  }

  requireFresh(): void {
    const { present, staleMs = STALE_MS } = this.#parts;
    const sinceMs = performance.now() - staleMs;
    for (const replica of present())
      if ((this.#replicas.get(replica)?.heardAtMs ?? -Infinity) < sinceMs)
        throw new AppError('queues_unavailable', `cannot count the tasks that wait at ${replica}: it is silent`);
  }

  #heard({ from, told, begins }: Message): void {
    if (from === this.#parts.instance) return;
    let replica = this.#replicas.get(from);
    if (replica === undefined) this.#replicas.set(from, (replica = { heardAtMs: 0, queues: new Map() }));
    const nowMs = (replica.heardAtMs = performance.now());
    if (begins === true) for (const queue of [...replica.queues.keys()]) this.#set(from, replica, queue, undefined);
    for (const [queue, count, waiting, ageMs] of told) {
      const isMore = count > (replica.queues.get(queue)?.count ?? 0);
      this.#set(from, replica, queue, count === 0 ? undefined : { count, waiting, headSinceMs: nowMs - ageMs });
      if (isMore) this.#grown.tell(queue);
    }
  }

  #set(from: InstanceId, { queues }: Replica, queue: QueueName, told: Count | undefined): void {
    if (told === undefined) queues.delete(queue);
    else queues.set(queue, told);
    let waiting = this.#waiting.get(queue);
    if (told !== undefined && told.waiting > 0) {
      if (waiting === undefined) this.#waiting.set(queue, (waiting = new Set()));
      waiting.add(from);
    } else if (waiting?.delete(from) === true && waiting.size === 0) this.#waiting.delete(queue);
  }

  #tell(): void {
    const { bus, channel, instance: from, lines, isPresent } = this.#parts;
    this.#rounds += 1;
    this.#toldWaiting.clear();
    const isWhole = this.#rounds % WHOLE_EVERY === 0;
    if (isWhole) this.#forgetDead(isPresent);
    const queues = isWhole ? new Set([...lines.line.queues(), ...this.#changed]) : this.#changed;
    if (queues.size === 0 && this.#rounds % SIGN_EVERY !== 0) return;
    const told = [...queues].map((queue) => this.#toldOf(queue));
    this.#changed.clear();
    for (let at = 0; at === 0 || at < told.length; at += MOST_IN_ONE) {
      const some = told.slice(at, at + MOST_IN_ONE);
      bus.publish(channel, { from, told: some, ...(isWhole && at === 0 ? { begins: true } : {}) } satisfies Message);
    }
  }

  #toldOf(queue: QueueName): Told {
    const { lines } = this.#parts;
    const first = lines.line.first(queue);
    const ageMs = first === undefined ? 0 : Math.round(performance.now() - first.sinceMs);
    return [queue, lines.count(queue), lines.line.waitingCount(queue), ageMs];
  }

  #forgetDead(isPresent: (replica: InstanceId) => boolean): void {
    for (const [from, replica] of this.#replicas) {
      if (isPresent(from)) continue;
      for (const queue of [...replica.queues.keys()]) this.#set(from, replica, queue, undefined);
      this.#replicas.delete(from);
    }
  }
}
