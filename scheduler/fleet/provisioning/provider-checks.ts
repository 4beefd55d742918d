// Checks of providers that an operator asks for: a look at the program, then its `list`, compared with the machines
// that the provider should have. A check changes nothing. Calls of one provider at the same time share a check.
import type { Clock } from '#shared/clock.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { ConfiguredProvider, Instance } from '../../domain/provisioning.ts';
import { outputOf } from './provider-failure.ts';
import { programProblem } from './provider-program.ts';
import { unknownProvider } from './provider-names.ts';
import type { ProviderSettings } from './providers-file.ts';
import { sightingOf } from './sightings.ts';
import { isOver } from './states.ts';
import type { ProvisionedRow } from './states.ts';

/** Instances and machines that an answer names. */
export const MOST_NAMED = 100;
/** Time that a provider may take to list an instance that it has made, and to forget another. */
const SETTLED_AFTER_MS = 2 * 60_000;

/** An instance of the listing; `machineId` null: it serves no machine. */
export interface CheckedInstance extends Pick<
  Instance,
  'instanceId' | 'state' | 'address' | 'hourlyCost' | 'endsAtMs'
> {
  readonly machineId: string | null;
}

export interface ProviderCheck {
  readonly name: string;
  /** Why the provider cannot be relied on; null: it can. */
  readonly problem: string | null;
  /** Remedy of the problem; empty: there is none. */
  readonly cure: string;
  /** Last lines of the program that failed; empty: it did not fail, or wrote none. */
  readonly output: string;
  /** Time that the call of `list` took; 0: it was not called. */
  readonly tookMs: number;
  /** Instances with the tag of this installation; null: there is no complete listing. */
  readonly instances: number | null;
  /** Instances without a machine first; at most MOST_NAMED. */
  readonly listed: readonly CheckedInstance[];
  /** Machines whose instances are not in the listing; at most MOST_NAMED. */
  readonly missing: readonly Pick<ProvisionedRow, 'machineId' | 'poolName' | 'instanceId'>[];
}

export interface ProviderChecksParts {
  readonly providers: {
    names(): readonly string[];
    get(name: string): ConfiguredProvider | undefined;
    settingsOf(name: string): ProviderSettings | undefined;
  };
  readonly installationId: () => Promise<string>;
  /** Rows that are not over, and those that ended lately. */
  readonly rows: () => Promise<readonly ProvisionedRow[]>;
  readonly clock: Clock;
}

export class ProviderChecks {
  readonly #parts: ProviderChecksParts;
  readonly #running = new Map<string, Promise<ProviderCheck>>();

  constructor(parts: ProviderChecksParts) {
    this.#parts = parts;
  }

  /** @throws AppError `provider_not_found` */
  async check(name: string): Promise<ProviderCheck> {
    const running = this.#running.get(name);
    if (running !== undefined) return await running;
    const { providers } = this.#parts;
    const [provider, settings] = [providers.get(name), providers.settingsOf(name)];
    if (provider === undefined || settings === undefined)
      throw new AppError('provider_not_found', unknownProvider(name.slice(0, 80), providers.names()));
    const check = this.#check(provider, settings).finally(() => this.#running.delete(name));
    this.#running.set(name, check);
    return await check;
  }

  async #check(provider: ConfiguredProvider, { command }: ProviderSettings): Promise<ProviderCheck> {
    const { installationId, rows, clock } = this.#parts;
    const { name } = provider;
    const none = { name, output: '', tookMs: 0, instances: null, listed: [], missing: [] };
    const unfit = await programProblem(command[0] ?? '');
    if (unfit !== undefined) return { ...none, ...unfit };
    const tag = await installationId();
    const [beganMs, fromMs] = [clock.nowMs(), clock.monotonicMs()];
    let listed: readonly Instance[];
    try {
      listed = await provider.list(tag);
    } catch (error) {
      const tookMs = clock.monotonicMs() - fromMs;
      const said = { problem: messageOf(error), output: outputOf(error), cure: byHand(tag, command) };
      return { ...none, ...said, tookMs };
    }
    const tookMs = clock.monotonicMs() - fromMs;
    // The rows are read last: a machine that was requested during the listing is no stranger.
    return { ...none, tookMs, instances: listed.length, ...comparedWith(listed, name, await rows(), beganMs) };
  }
}

/**
 * The listing beside the machines that there should be. Pure.
 * @param all - rows of all providers
 * @param beganMs - begin of the listing
 */
export function comparedWith(
  listed: readonly Instance[],
  provider: string,
  all: readonly ProvisionedRow[],
  beganMs: number,
): Pick<ProviderCheck, 'problem' | 'cure' | 'listed' | 'missing'> {
  const rows = all.filter((row) => row.provider === provider);
  const others = all.filter((row) => row.provider !== provider);
  const { ofRow, extra, orphans } = sightingOf(listed, rows, others);
  const settledMs = beganMs - SETTLED_AFTER_MS;
  const isRecent = ({ endedAtMs }: ProvisionedRow): boolean => (endedAtMs ?? Infinity) > settledMs;
  // Another provider of the same account may have made the instance. A tag tells it, and an id is its provider's own.
  const foreign = new Map(others.filter(isRecent).map((row) => [row.requestId, row.machineId]));
  const machineOf = new Map<string, string>();
  for (const { instanceId, requestId } of listed) {
    const machineId = foreign.get(requestId);
    if (machineId !== undefined) machineOf.set(instanceId, machineId);
  }
  for (const row of rows) {
    const seen = ofRow.get(row.requestId);
    if (seen !== undefined) machineOf.set(seen.instanceId, row.machineId);
    // An instance may be listed for a while after its end.
    else if ((row.endedAtMs ?? 0) > settledMs && row.instanceId !== null) machineOf.set(row.instanceId, row.machineId);
  }
  const strangers = new Set([...extra, ...orphans].map(({ instanceId }) => instanceId));
  const isStranger = ({ instanceId }: Instance): boolean => strangers.has(instanceId) && !machineOf.has(instanceId);
  const ordered = [...listed.filter(isStranger), ...listed.filter((instance) => !isStranger(instance))];
  const missing = rows.filter(
    (row) =>
      !isOver(row) &&
      (row.state === 'created' || row.state === 'joined') &&
      row.instanceId !== null &&
      (row.createdAtMs ?? beganMs) <= settledMs &&
      !ofRow.has(row.requestId),
  );
  return {
    problem:
      missing.length === 0
        ? null
        : `list leaves out ${missing.length} of the instances that serve machines: they would count as gone`,
    cure: missing.length === 0 ? '' : 'have list tell every instance that create tagged, each with both tags',
    listed: ordered.slice(0, MOST_NAMED).map((instance) => ({
      instanceId: instance.instanceId,
      state: instance.state,
      address: instance.address,
      hourlyCost: instance.hourlyCost,
      endsAtMs: instance.endsAtMs,
      machineId: machineOf.get(instance.instanceId) ?? null,
    })),
    missing: missing
      .slice(0, MOST_NAMED)
      .map(({ machineId, poolName, instanceId }) => ({ machineId, poolName, instanceId })),
  };
}

/** The call as a person makes it. Arguments after the program may be secrets, and are left out. */
function byHand(tag: string, [program = '', ...args]: readonly string[]): string {
  const rest = args.length === 0 ? '' : ' …';
  return `run it as the user of the scheduler: echo '{"installationId":"${tag}"}' | ${program}${rest} list`;
}
