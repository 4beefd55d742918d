/**
 * A cloud that misbehaves, behind the port of providers: calls fail before or after their effect, hang until their
 * deadline, make two instances, set wrong tags, and listings fail or omit instances. Instances may never join, or die.
 */
import type { ConfiguredProvider, Instance, InstanceRequest } from '#scheduler/domain/provisioning.ts';

/** Random numbers below 1 from a seed. */
export function randomFrom(seed: number): () => number {
  let state = seed + 0x6d2b79f5;
  return () => {
    state = Math.imul(state ^ (state >>> 15), state | 1);
    state ^= state + Math.imul(state ^ (state >>> 7), state | 61);
    return ((state ^ (state >>> 14)) >>> 0) / 4_294_967_296;
  };
}

export interface CloudInstance extends Instance {
  readonly installationId: string;
  readonly joinToken: string;
  readonly bornMs: number;
  /** Infinity: its agent never comes up. */
  readonly joinsAtMs: number;
  /** The agent connects after it has joined; Infinity: it ends between the two. */
  readonly connectsAtMs: number;
  /** A condition keeps containers away until then. */
  readonly readyAtMs: number;
  /** The provider lists it no more until then. */
  hiddenUntilMs: number;
  machineId: string | undefined;
  isRefused: boolean;
  endsAt: number | null;
}

interface Hung {
  readonly untilMs: number;
  readonly reject: (error: Error) => void;
}

const TIMEOUT_MS = 120_000;
const MINUTE = 60_000;

export class UnrulyCloud implements ConfiguredProvider {
  readonly name: string;
  readonly timeoutMs = TIMEOUT_MS;
  readonly instances = new Map<string, CloudInstance>();
  /** Whether it misbehaves. */
  isUnruly = true;
  /** Whether every call of `terminate` fails, without an effect. */
  refusesTerminate = false;
  /** Whether every listing fails. */
  refusesList = false;
  /** Whether every call of `create` fails after it made the instance. */
  failsCreate = false;
  /** Time for which listings omit a new instance. */
  hidesForMs = 0;
  creates = 0;
  readonly #random: () => number;
  readonly #nowMs: () => number;
  readonly #isIdempotent: boolean;
  #hung: Hung[] = [];
  #made = 0;

  constructor(name: string, random: () => number, nowMs: () => number) {
    this.name = name;
    this.#random = random;
    this.#nowMs = nowMs;
    this.#isIdempotent = random() < 0.5;
  }

  async create(request: InstanceRequest): Promise<Instance> {
    this.creates += 1;
    if (this.#does(0.15)) throw new Error('out of capacity');
    const known = [...this.instances.values()].find((one) => one.requestId === request.requestId);
    const instance = this.#isIdempotent && known !== undefined ? known : this.#make(request);
    if (this.#does(0.1)) this.#make(request);
    if (this.#does(0.15) || this.failsCreate) throw new Error('failed after it made the instance');
    if (this.#does(0.15)) return await this.#hang();
    return shown(instance);
  }

  list(installationId: string): Promise<readonly Instance[]> {
    if (this.#does(0.2) || this.refusesList) return Promise.reject(new Error('the listing is incomplete'));
    const nowMs = this.#nowMs();
    const ours = [...this.instances.values()].filter((one) => one.installationId === installationId);
    for (const one of ours) if (this.#does(0.1)) one.hiddenUntilMs = nowMs + this.#random() * 3 * MINUTE;
    return Promise.resolve(ours.filter((one) => one.hiddenUntilMs <= nowMs).map(shown));
  }

  async terminate({ instanceId }: Pick<Instance, 'instanceId'>): Promise<void> {
    if (this.#does(0.15) || this.refusesTerminate) throw new Error('not now');
    this.instances.delete(instanceId);
    if (this.#does(0.15)) throw new Error('failed after it ended the instance');
    if (this.#does(0.1)) await this.#hang();
  }

  /** Passes time: hung calls end at their deadlines, instances die. */
  pass(): void {
    const nowMs = this.#nowMs();
    const over = this.#hung.filter((one) => one.untilMs <= nowMs);
    this.#hung = this.#hung.filter((one) => one.untilMs > nowMs);
    for (const one of over) one.reject(new Error('did not end within 120 s'));
    for (const one of this.instances.values()) {
      const dies = this.#does(0.005);
      const isNoticed = this.#does(0.005);
      if (dies) this.instances.delete(one.instanceId);
      else if (isNoticed) one.endsAt = nowMs + 2 * MINUTE;
      if (one.endsAt !== null && nowMs >= one.endsAt) this.instances.delete(one.instanceId);
    }
  }

  #does(share: number): boolean {
    return this.#random() < share && this.isUnruly;
  }

  #hang(): Promise<never> {
    return new Promise((_resolve, reject) => this.#hung.push({ untilMs: this.#nowMs() + TIMEOUT_MS, reject }));
  }

  #make({ requestId, installationId, joinLine }: InstanceRequest): CloudInstance {
    this.#made += 1;
    const nowMs = this.#nowMs();
    const joinsAtMs = this.#does(0.15) ? Infinity : nowMs + 30_000 + this.#random() * MINUTE;
    const connectsAtMs = this.#does(0.1) ? Infinity : joinsAtMs + 20_000 + this.#random() * MINUTE;
    const instance: CloudInstance = {
      instanceId: `i-${this.#made}`,
      requestId: this.#does(0.05) ? 'wrong-tag' : requestId,
      installationId,
      state: 'running',
      address: `198.51.100.${this.#made % 250}`,
      hourlyCost: this.#does(0.3) ? null : 2.5,
      endsAtMs: null,
      joinToken: joinLine,
      bornMs: nowMs,
      joinsAtMs,
      connectsAtMs,
      readyAtMs: this.#does(0.1) ? Infinity : connectsAtMs + this.#random() * MINUTE,
      hiddenUntilMs: nowMs + (this.#does(0.3) ? this.#random() * 2 * MINUTE : this.hidesForMs),
      machineId: undefined,
      isRefused: false,
      endsAt: null,
    };
    this.instances.set(instance.instanceId, instance);
    return instance;
  }
}

const shown = ({ instanceId, requestId, state, address, hourlyCost, endsAt }: CloudInstance): Instance => ({
  instanceId,
  requestId,
  state,
  address,
  hourlyCost,
  endsAtMs: endsAt,
});
