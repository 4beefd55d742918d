// Judges one look at a machine's containers and devices: the engine's list between two readings of the agent's journal.
// Pure; nothing is asked of the agent's process.

/** A container of this machine as the engine has it. */
export interface SeenContainer {
  readonly dockerId: string;
  readonly containerId: string;
  readonly epoch: number;
  readonly running: boolean;
  /** GPUs that the engine was asked to pass. */
  readonly gpus: readonly string[];
}

/** An entry of the journal whose container is not gone. */
export interface Lease {
  readonly containerId: string;
  readonly epoch: number;
  /** The agent has started it. */
  readonly started: boolean;
  readonly gpus: readonly string[];
}

export interface Look {
  /** The journal is read before the list and after it: an entry in both readings held all the while. */
  readonly before: readonly Lease[];
  readonly seen: readonly SeenContainer[];
  readonly after: readonly Lease[];
}

/** Faults that may not stand even for a moment: a container twice, a device with two containers. */
export function contradictions({ before, seen, after }: Look): readonly string[] {
  const found: string[] = [];
  const running = seen.filter((one) => one.running);
  for (const [id, all] of Map.groupBy(running, (one) => one.containerId))
    if (all.length > 1) found.push(`container_twice: ${id} runs as ${all.map((one) => one.dockerId).join(', ')}`);
  for (const [gpu, all] of holdersOf(running, (one) => one.containerId))
    if (all.length > 1) found.push(`device_twice: ${gpu} is with ${all.join(' and ')}`);
  for (const [gpu, all] of holdersOf(after, keyOf))
    if (all.length > 1) found.push(`lease_twice: ${gpu} is leased to ${all.join(' and ')}`);
  for (const one of running) {
    const leases = [before, after].map((entries) => entries.find((entry) => keyOf(entry) === keyOf(one)));
    if (leases.every((lease) => lease !== undefined && !isSame(lease.gpus, one.gpus)))
      found.push(
        `not_its_lease: ${keyOf(one)} has ${listOf(one.gpus)}, and ${listOf(leases[1]?.gpus)} is leased to it`,
      );
  }
  return found;
}

/** Mismatches that may stand for a while: parts of a start or an end that a kill has cut off. */
export function unpaired({ before, seen, after }: Look): readonly string[] {
  const known = new Set([...before, ...after].map(keyOf));
  const there = new Set(seen.map(keyOf));
  const wasStarted = new Set(before.filter(({ started }) => started).map(keyOf));
  return [
    ...seen
      .filter((one) => one.running && !known.has(keyOf(one)))
      .map((one) => `orphan: ${keyOf(one)} (${one.dockerId}) runs, and the journal does not know it`),
    ...after
      .filter((lease) => lease.started && wasStarted.has(keyOf(lease)) && !there.has(keyOf(lease)))
      .map((lease) => `lease_left: ${keyOf(lease)} has ${listOf(lease.gpus)} by the journal, and is not there`),
  ];
}

/** Remembers since when a fault has been found at every look. */
export class Patience {
  readonly #forMs: number;
  #since = new Map<string, number>();

  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  /** @returns faults that have stood for too long */
  overdue(said: readonly string[], nowMs: number): readonly string[] {
    this.#since = new Map(said.map((text) => [text, this.#since.get(text) ?? nowMs]));
    return [...this.#since].flatMap(([text, sinceMs]) => (nowMs - sinceMs >= this.#forMs ? [text] : []));
  }
}

const keyOf = ({ containerId, epoch }: { readonly containerId: string; readonly epoch: number }): string =>
  `${containerId} (epoch ${epoch})`;

const listOf = (gpus: readonly string[] = []): string => (gpus.length === 0 ? 'no GPU' : gpus.join(', '));

const isSame = (some: readonly string[], others: readonly string[]): boolean =>
  some.toSorted().join() === others.toSorted().join();

function holdersOf<T extends { readonly gpus: readonly string[] }>(
  all: readonly T[],
  nameOf: (one: T) => string,
): ReadonlyMap<string, readonly string[]> {
  const holders = new Map<string, string[]>();
  for (const one of all) for (const gpu of one.gpus) holders.set(gpu, [...(holders.get(gpu) ?? []), nameOf(one)]);
  return holders;
}
