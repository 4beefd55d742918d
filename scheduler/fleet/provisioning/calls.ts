// Calls of create and terminate for rows. Each is written before it begins, and its outcome after it ended. A call that
// another process began counts as running until its deadline.
import type { Clock } from '#shared/clock.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { ConfiguredProvider, Instance } from '../../domain/provisioning.ts';
import type { Sealer } from '../../workspaces/secrets/seal.ts';
import type { Listings } from './listings.ts';
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

  constructor(parts: CallsParts) {
    this.#parts = parts;
  }

  /** Forgets everything: this replica begins to lead. */
  clear(): void {
    this.#ended.clear();
    this.#unended.clear();
  }

  forget(requestId: string): void {
    this.#ended.delete(requestId);
    this.#unended.delete(requestId);
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
    const { rows, listings, sealer, installationId, joinOf, clock } = this.#parts;
    this.#ended.delete(row.requestId);
    const calling = await rows.move(row, 'call', { creates: row.creates + 1, calledAtMs: clock.nowMs() });
    if (calling === undefined) return false;
    listings.forget(row.requestId);
    try {
      const provider = this.#provider(row);
      if (row.joinToken === null) throw new Error('the join token of the request is gone');
      const token = Buffer.from(sealer.open(row.joinToken, sealContext(row.requestId))).toString();
      const { requestId, machineId, poolName, shape } = row;
      const request = { requestId, installationId: await installationId(), machineId, poolName, shape };
      const instance = await provider.create({ ...request, ...(await joinOf(token)) });
      this.#ended.set(row.requestId, clock.nowMs());
      return await this.made(calling, instance);
    } catch (error) {
      this.#ended.set(row.requestId, clock.nowMs());
      await this.#failed(calling, error);
      listings.want(row.provider);
      return false;
    }
  }

  /** The instance of the request is known. */
  async made(row: ProvisionedRow, instance: Instance): Promise<boolean> {
    const { rows, clock } = this.#parts;
    const change = { ...factsOf(instance, row), createdAtMs: clock.nowMs(), failures: 0, failure: null };
    return (await rows.move(row, 'made', change)) !== undefined;
  }

  /** @returns false: the instance may be there still */
  async terminate(row: ProvisionedRow, instanceId: string): Promise<boolean> {
    const { rows, listings, clock } = this.#parts;
    this.#ended.delete(row.requestId);
    const calling = await rows.note(row, { instanceId, calledAtMs: clock.nowMs(), terminatedAtMs: null });
    if (calling === undefined) return false;
    listings.forget(row.requestId);
    try {
      await this.#provider(row).terminate({ instanceId, requestId: row.requestId });
      this.#ended.set(row.requestId, clock.nowMs());
      this.#unended.delete(row.requestId);
      listings.want(row.provider);
      return (await rows.note(calling, { terminatedAtMs: clock.nowMs(), failures: 0 })) !== undefined;
    } catch (error) {
      this.#ended.set(row.requestId, clock.nowMs());
      await this.#failed(calling, error);
      return false;
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
