// Calls of create and terminate for rows. Each is written before it begins, and its outcome after it ended. A call that
// another process began counts as running until its deadline.
import type { Clock } from '#shared/clock.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { ConfiguredProvider, Instance } from '../../domain/provisioning.ts';
import type { Sealer } from '../../workspaces/secrets/seal.ts';
import type { Listings } from './listings.ts';
import type { Seen } from './next-step.ts';
import { outputOf } from './provider-failure.ts';
import type { ProvisionedRows } from './rows.ts';
import { isFailedEnd } from './states.ts';
import type { ProvisionedRow } from './states.ts';

/** Time that a call of another process may exceed its deadline by. */
const SETTLE_MS = 5_000;
const MOST_FAILURE = 500;

export interface CallsParts {
  readonly rows: ProvisionedRows;
  readonly listings: Pick<Listings, 'forget' | 'want'>;
  readonly providers: { get(name: string): ConfiguredProvider | undefined };
  readonly sealer: Pick<Sealer, 'seal' | 'open'>;
  readonly installationId: () => Promise<string>;
  /** Line and document with which an instance joins. */
  readonly joinOf: (joinToken: string) => Promise<{ readonly joinLine: string; readonly userData: string }>;
  readonly clock: Clock;
  readonly log: Log;
}

export class Calls {
  readonly #parts: CallsParts;
  /** When the last call that this process made for a row ended. */
  readonly #ended = new Map<string, number>();
  /** Failure of a row's last `terminate`. */
  readonly #unended = new Map<string, string>();
  /** Instances that `create` answered, until their rows name them. */
  readonly #answers = new Map<string, Instance>();

  constructor(parts: CallsParts) {
    this.#parts = parts;
  }

  /** Forgets everything: this replica begins to lead. */
  clear(): void {
    for (const known of [this.#ended, this.#unended, this.#answers]) known.clear();
  }

  forget(requestId: string): void {
    for (const known of [this.#ended, this.#unended, this.#answers]) known.delete(requestId);
  }

  /**
   * The sighting of a row's instance, by listings or by the answer of `create`. A write that fails behind a successful
   * `create` leaves a row that names no instance, and a listing may not show the instance yet: without the answer,
   * `create` would be called again.
   */
  seenOf({ requestId, instanceId }: ProvisionedRow, listed: Seen): Seen {
    const instance = instanceId === null ? this.#answers.get(requestId) : undefined;
    return instance === undefined || listed.instance !== null ? listed : { ...listed, instance };
  }

  /** Failure of the row's last `terminate`; null: it worked, or another process called it. */
  terminateFailureOf({ requestId }: Pick<ProvisionedRow, 'requestId'>): string | null {
    return this.#unended.get(requestId) ?? null;
  }

  /** The join token of a request, as its row keeps it. */
  sealed(requestId: string, joinToken: string): Uint8Array {
    return this.#parts.sealer.seal(Buffer.from(joinToken), sealContext(requestId));
  }

  /** Until when the last call for the row may run; 0: it has ended, or there was none. */
  endsMs({ requestId, calledAtMs, provider }: ProvisionedRow): number {
    const ended = this.#ended.get(requestId);
    if (calledAtMs === null || ended !== undefined) return ended ?? 0;
    return calledAtMs + (this.#parts.providers.get(provider)?.timeoutMs ?? 0) + SETTLE_MS;
  }

  /** @returns false: no instance is known */
  async create(row: ProvisionedRow): Promise<boolean> {
    const { rows, listings, sealer, joinOf, clock } = this.#parts;
    // A database that does not answer is no failure of the provider.
    const installationId = await this.#parts.installationId();
    this.#ended.delete(row.requestId);
    const calling = await rows.move(row, 'call', { creates: row.creates + 1, calledAtMs: clock.nowMs() });
    if (calling === undefined) return false;
    listings.forget(row.requestId);
    const instance = await this.#answered(calling, async (provider) => {
      if (row.joinToken === null) throw new Error('the join token of the request is gone');
      const token = Buffer.from(sealer.open(row.joinToken, sealContext(row.requestId))).toString();
      const { requestId, machineId, poolName, shape } = row;
      const request = { requestId, installationId, machineId, poolName, shape, ...(await joinOf(token)) };
      // A process that was stopped for minutes may have a successor, which has called `create` by now.
      return rows.isLeading ? await provider.create(request) : undefined;
    });
    if (instance === undefined) {
      listings.want(row.provider);
      return false;
    }
    this.#answers.set(row.requestId, instance);
    return await this.made(calling, instance);
  }

  /** The instance of the request is known. */
  async made(row: ProvisionedRow, instance: Instance): Promise<boolean> {
    const { rows, clock } = this.#parts;
    const change = { ...factsOf(instance, row), createdAtMs: clock.nowMs(), failures: 0, failure: null };
    if ((await rows.move(row, 'made', change)) === undefined) return false;
    this.#answers.delete(row.requestId);
    return true;
  }

  /** @returns false: the instance may be there still */
  async terminate(row: ProvisionedRow, instanceId: string): Promise<boolean> {
    const { rows, listings, clock } = this.#parts;
    this.#ended.delete(row.requestId);
    const calling = await rows.note(row, { instanceId, calledAtMs: clock.nowMs(), terminatedAtMs: null });
    if (calling === undefined) return false;
    listings.forget(row.requestId);
    const isEnded = await this.#answered(calling, async (provider) => {
      await provider.terminate({ instanceId, requestId: row.requestId });
      return true;
    });
    if (isEnded === undefined) return false;
    this.#unended.delete(row.requestId);
    listings.want(row.provider);
    return (await rows.note(calling, { terminatedAtMs: clock.nowMs(), failures: 0 })) !== undefined;
  }

  /** The provider's answer; undefined: the call failed, which is written. */
  async #answered<T>(
    calling: ProvisionedRow,
    call: (provider: ConfiguredProvider) => Promise<T>,
  ): Promise<T | undefined> {
    const { clock } = this.#parts;
    try {
      const answer = await call(this.#provider(calling));
      this.#ended.set(calling.requestId, clock.nowMs());
      return answer;
    } catch (error) {
      this.#ended.set(calling.requestId, clock.nowMs());
      await this.#failed(calling, error);
      return undefined;
    }
  }

  #provider({ provider: name }: ProvisionedRow): ConfiguredProvider {
    const provider = this.#parts.providers.get(name);
    if (provider === undefined) throw new Error(`no provider ${name} is configured`);
    return provider;
  }

  async #failed(row: ProvisionedRow, error: unknown): Promise<void> {
    const { rows, clock, log } = this.#parts;
    const failure = messageOf(error).slice(0, MOST_FAILURE);
    const { requestId, provider, poolName: pool, state } = row;
    const output = outputOf(error);
    log.warn({ requestId, provider, pool, state, failure, output }, 'a call of a provider failed');
    const failures = row.failures + 1;
    if (state === 'terminating') this.#unended.set(requestId, failure);
    // A pool's back-off ends although the machine that failed it cannot be terminated.
    const isOfPool = state === 'terminating' && isFailedEnd(row);
    await rows.note(row, isOfPool ? { failures } : { failures, failedAtMs: clock.nowMs(), failure });
  }
}

const sealContext = (requestId: string): string => `provisioned.${requestId}`;

/** Facts of an instance that a row keeps. An answer that omits the price or the address keeps the one that is known. */
export const factsOf = (
  { instanceId, address, hourlyCost, endsAtMs }: Instance,
  known: Pick<ProvisionedRow, 'address' | 'hourlyCost'>,
) => ({
  instanceId,
  address: address ?? known.address,
  hourlyCost: hourlyCost ?? known.hourlyCost,
  endsAtMs,
});
