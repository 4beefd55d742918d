// Listings of providers: one for each provider, every 30 to 60 s while it has machines, every 15 min else. A listing
// that fails changes nothing. Instances that should not be are terminated after two sightings and a minute.
import type { Clock } from '#shared/clock.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Instance, Provider } from '../../domain/provisioning.ts';
import type { Lanes } from './lanes.ts';
import { UNSEEN, retryAfterMs } from './next-step.ts';
import type { Seen } from './next-step.ts';
import { outputOf } from './provider-failure.ts';
import { isDue, sightingOf, unwantedAfter } from './sightings.ts';
import type { Unwanted } from './sightings.ts';
import { isOver } from './states.ts';
import type { ProvisionedRow } from './states.ts';
import type { FailedListings } from './trouble.ts';

const CHANGING_MS = 30_000;
const STEADY_MS = 60_000;
const IDLE_MS = 15 * 60_000;
/** Shortest time between two listings of a provider. */
const SOONEST_MS = 5_000;
const MOST_FAILURE = 500;

export interface ListingsParts {
  readonly lanes: Pick<Lanes, 'run'>;
  readonly providers: { names(): readonly string[]; get(name: string): Provider | undefined };
  /** Rows of all providers. */
  readonly rows: () => readonly ProvisionedRow[];
  /** Until when a call for the row may run: a listing begun before proves no absence. */
  readonly callEndsMs: (row: ProvisionedRow) => number;
  readonly installationId: () => Promise<string>;
  /** Which of the instances have a live row, by the database. */
  readonly owned: (provider: string, instances: readonly Instance[]) => Promise<ReadonlySet<string>>;
  readonly isLeader: () => boolean;
  /** Told of each row's instance in a complete listing. */
  readonly onFacts: (row: ProvisionedRow, instance: Instance) => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
}

interface Listed {
  beganMs: number;
  isRunning: boolean;
  isWanted: boolean;
  unwanted: ReadonlyMap<string, Unwanted>;
  failures: number;
  failure: string | null;
}

export class Listings {
  readonly #parts: ListingsParts;
  readonly #of = new Map<string, Listed>();
  readonly #seen = new Map<string, Seen>();
  /** Instances that are being terminated, by provider. */
  readonly #ending = new Set<string>();

  constructor(parts: ListingsParts) {
    this.#parts = parts;
  }

  /** Forgets everything: this replica begins to lead. */
  clear(): void {
    this.#of.clear();
    this.#seen.clear();
  }

  seenOf(requestId: string): Seen {
    return this.#seen.get(requestId) ?? UNSEEN;
  }

  /** A call for the row begins or ended: earlier listings prove nothing more. */
  forget(requestId: string): void {
    this.#seen.delete(requestId);
  }

  /** Asks for a listing soon. */
  want(provider: string): void {
    this.#stateOf(provider).isWanted = true;
  }

  failedOf(provider: string): FailedListings {
    const { failures, failure } = this.#stateOf(provider);
    return { failures, failure };
  }

  #stateOf(provider: string): Listed {
    let state = this.#of.get(provider);
    if (state === undefined) {
      state = {
        beganMs: -Infinity,
        isRunning: false,
        isWanted: false,
        unwanted: new Map(),
        failures: 0,
        failure: null,
      };
      this.#of.set(provider, state);
    }
    return state;
  }

  /** Lists the providers whose turn it is. */
  async tick(): Promise<void> {
    const due = this.#parts.providers.names().filter((name) => this.#isDue(name));
    await Promise.all(due.map((name) => this.list(name)));
  }

  #isDue(provider: string): boolean {
    const state = this.#stateOf(provider);
    if (state.isRunning) return false;
    const rows = this.#parts.rows().filter((row) => row.provider === provider);
    const isChanging = rows.some((row) => !isOver(row) && row.state !== 'joined') || state.unwanted.size > 0;
    const everyMs = state.isWanted ? SOONEST_MS : isChanging ? CHANGING_MS : rows.length > 0 ? STEADY_MS : IDLE_MS;
    // Rows that wait for a listing ask for it all the time, also while it fails.
    const pauseMs = Math.max(everyMs, Math.min(STEADY_MS, retryAfterMs(state.failures)));
    return this.#parts.clock.monotonicMs() - state.beganMs >= pauseMs;
  }

  /** Lists one provider now. */
  async list(name: string): Promise<void> {
    const { providers, clock, log, installationId, isLeader } = this.#parts;
    const provider = providers.get(name);
    if (provider === undefined) return;
    const state = this.#stateOf(name);
    state.isRunning = true;
    state.isWanted = false;
    state.beganMs = clock.monotonicMs();
    const beganMs = clock.nowMs();
    try {
      const listed = await provider.list(await installationId());
      [state.failures, state.failure] = [0, null];
      if (isLeader()) await this.#take(provider, listed, beganMs, state);
    } catch (error) {
      const failure = messageOf(error).slice(0, MOST_FAILURE);
      [state.failures, state.failure] = [state.failures + 1, failure];
      const output = outputOf(error);
      log.warn({ provider: name, failure, output }, 'a provider could not be listed: nothing is concluded');
    } finally {
      state.isRunning = false;
    }
  }

  async #take(provider: Provider, listed: readonly Instance[], beganMs: number, state: Listed): Promise<void> {
    const { callEndsMs, onFacts } = this.#parts;
    const all = this.#parts.rows();
    const rows = all.filter((row) => row.provider === provider.name);
    const others = all.filter((row) => row.provider !== provider.name);
    const { ofRow, extra, orphans } = sightingOf(listed, rows, others);
    for (const row of rows) {
      if (isOver(row)) {
        this.#seen.delete(row.requestId);
        continue;
      }
      const instance = ofRow.get(row.requestId);
      if (instance !== undefined) {
        this.#seen.set(row.requestId, { instance, absences: 0, absentSinceMs: 0 });
        await onFacts(row, instance);
      } else if (row.creates > 0 && beganMs >= callEndsMs(row)) {
        const { absences, absentSinceMs } = this.seenOf(row.requestId);
        const sinceMs = absences === 0 ? beganMs : absentSinceMs;
        this.#seen.set(row.requestId, { instance: null, absences: absences + 1, absentSinceMs: sinceMs });
      }
    }
    await this.#endUnwanted(provider, extra, orphans, state);
  }

  async #endUnwanted(
    provider: Provider,
    extra: readonly Instance[],
    orphans: readonly Instance[],
    state: Listed,
  ): Promise<void> {
    const { clock, owned, isLeader } = this.#parts;
    const nowMs = clock.nowMs();
    state.unwanted = unwantedAfter(state.unwanted, [...extra, ...orphans], nowMs);
    const due = [...state.unwanted.values()].filter((one) => isDue(one, nowMs)).map(({ instance }) => instance);
    if (due.length === 0) return;
    const isExtra = new Set(extra.map(({ instanceId }) => instanceId));
    const live = await owned(
      provider.name,
      due.filter(({ instanceId }) => !isExtra.has(instanceId)),
    );
    for (const instance of due) if (!live.has(instance.instanceId) && isLeader()) void this.#endOne(provider, instance);
  }

  /** Terminates an instance behind the listing: a call that hangs must not keep the next listing away. */
  async #endOne(provider: Provider, instance: Instance): Promise<void> {
    const { lanes, isLeader, log } = this.#parts;
    const { instanceId, requestId } = instance;
    const key = `${provider.name} ${instanceId}`;
    if (this.#ending.has(key)) return;
    this.#ending.add(key);
    try {
      await lanes.run(provider.name, async () => {
        // Another replica may have begun to lead during the wait for the lane.
        if (!isLeader()) return;
        await provider.terminate({ instanceId, requestId });
        log.warn(
          { provider: provider.name, instanceId, requestId },
          'an instance that serves no machine is terminated',
        );
      });
    } catch (error) {
      log.warn(
        { provider: provider.name, instanceId, failure: messageOf(error), output: outputOf(error) },
        'an instance that serves no machine could not be terminated, trying again',
      );
    } finally {
      this.#ending.delete(key);
    }
  }
}
