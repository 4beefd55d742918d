// A planner with the world that it is told of. Rounds are played to their end.
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import type { Market, WorkspaceShare } from '#scheduler/domain/shares.ts';
import { DEFAULT_SHARE } from '#scheduler/domain/shares.ts';
import type { PlacementMachine, PlacementRequest } from '#scheduler/control/plan/filter.ts';
import type { ClassFacts, FitClass, Wanted } from '#scheduler/control/plan/fit-class.ts';
import type { Quota } from '#scheduler/control/plan/ledger.ts';
import { isOver } from '#scheduler/control/plan/ledger.ts';
import type { Choice } from '#scheduler/control/plan/place.ts';
import { placeContainer } from '#scheduler/control/plan/place.ts';
import type { Planner } from '#scheduler/control/plan/planner.ts';
import { RecordedPlanner } from '#scheduler/control/plan/recorded-planner.ts';
import type { Tape } from '#scheduler/control/plan/recording.ts';

export const NO_QUOTA: Quota = { gpus: null, cpuMillicores: null };

export class Played {
  readonly planner: Planner;
  readonly quotas = new Map<string, Quota>();
  readonly homes = new Map<string, MachineId>();
  readonly images = new Map<string, ClassFacts['image']>();
  readonly shares = new Map<string, WorkspaceShare>();
  readonly shunned = new Map<ContainerId, ReadonlySet<MachineId>>();
  readonly placed: { readonly wanted: Wanted; readonly choice: Choice }[] = [];
  asked = 0;
  /** The time of the round, at which machines are reserved. undefined: none is. */
  nowMs: number | undefined;

  /** @param tape - records all that the planner is told */
  constructor(machines: readonly PlacementMachine[] = [], tape?: Tape) {
    const planner = new RecordedPlanner(({ id }) => this.shunned.get(id) ?? new Set());
    this.planner = planner;
    if (tape !== undefined) planner.record(tape);
    for (const one of machines) this.planner.setMachine(one);
  }

  shareOf(workspaceId: string): WorkspaceShare {
    return this.shares.get(workspaceId) ?? DEFAULT_SHARE;
  }

  /** Market in which a container counts on that machine. */
  marketOn(machineId: MachineId, { gpuCount }: Pick<Wanted, 'gpuCount'>): Market | undefined {
    const machine = this.#last.get(machineId);
    if (machine === undefined || machine.poolOwner !== null) return undefined;
    if (gpuCount === 0) return 'cpu';
    const models = [...Map.groupBy(machine.gpus, ({ model }) => model)];
    return models.sort(([a, some], [b, others]) => others.length - some.length || (a < b ? -1 : 1))[0]?.[0];
  }

  /** Amounts of a market that a workspace holds by its containers, as rows have them. */
  useOf(workspaceId: string, market: Market): { gpus: number; cpuMillicores: number; memoryBytes: number } {
    const use = { gpus: 0, cpuMillicores: 0, memoryBytes: 0 };
    for (const { wanted, choice } of this.placed) {
      if (wanted.workspaceId !== workspaceId || this.marketOn(choice.machineId, wanted) !== market) continue;
      use.gpus += wanted.gpuCount;
      use.cpuMillicores += wanted.cpuMillicores;
      use.memoryBytes += wanted.memoryBytes;
    }
    return use;
  }

  /** GPUs that it would hold of a market with that container, or cores. */
  amountWith(wanted: Wanted, market: Market): number {
    const use = this.useOf(wanted.workspaceId, market);
    return market === 'cpu' ? (use.cpuMillicores + wanted.cpuMillicores) / 1000 : use.gpus + wanted.gpuCount;
  }

  fullMarkets(wanted: Wanted): ReadonlySet<Market> {
    const limits = Object.entries(this.shareOf(wanted.workspaceId).limits);
    const markets = limits.filter(
      ([market, limit]) => (market === 'cpu') === (wanted.gpuCount === 0) && this.amountWith(wanted, market) > limit,
    );
    return new Set(markets.map(([market]) => market));
  }

  #factsOf({ workspaceId, builtImage, volumes }: Pick<FitClass, 'workspaceId' | 'builtImage' | 'volumes'>): ClassFacts {
    return {
      quota: this.quotas.get(workspaceId) ?? NO_QUOTA,
      volumeHomes: new Set(volumes.flatMap((id) => this.homes.get(id) ?? [])),
      image: builtImage === '' ? null : (this.images.get(builtImage) ?? { machines: new Set(), inRegistry: false }),
    };
  }

  /** Request as a container alone would ask. */
  requestOf(wanted: Wanted): PlacementRequest {
    const { quota = NO_QUOTA, volumeHomes, image } = this.#factsOf(wanted);
    const { ledger, doubtful } = this.planner;
    return {
      ...wanted,
      volumeHomes,
      imageOnlyOn: image?.machines ?? null,
      imageInRegistry: image?.inRegistry === true,
      avoid: doubtful,
      overQuota: isOver(ledger.useOf(wanted.workspaceId), wanted, quota),
      fullMarkets: this.fullMarkets(wanted),
      spreadCounts: this.#spreadCounts(wanted),
      siblings: ledger.siblingsOf(wanted.queue),
      seed: wanted.id,
    };
  }

  #spreadCounts({ labels, queue }: Wanted): PlacementRequest['spreadCounts'] {
    if (labels === undefined || labels.spread === '') return undefined;
    const counts = new Map<string, number>();
    for (const [id, count] of this.planner.ledger.siblingsOf(queue)) {
      const value = this.planner.candidates.get(id)?.labels?.[labels.spread] ?? '';
      counts.set(value, (counts.get(value) ?? 0) + count);
    }
    return counts;
  }

  /** Whether a look at all machines finds one. */
  hasPlace(wanted: Wanted, machines: readonly PlacementMachine[]): boolean {
    return placeContainer(this.requestOf(wanted), machines).kind === 'placed';
  }

  /** @param seen - called before each container gets its place */
  round(seen: (wanted: Wanted, choice: Choice) => void = () => undefined): Wanted[] {
    const before = this.placed.length;
    if (this.nowMs !== undefined) this.planner.reserve(this.nowMs);
    this.planner.forgetFacts();
    for (let step = this.planner.next(); step !== undefined; step = this.planner.next()) {
      if (step.kind === 'ask') {
        this.asked += step.classes.length;
        for (const fitClass of step.classes) {
          const { workspaceId } = fitClass;
          this.planner.setShare(workspaceId, this.shareOf(workspaceId));
          this.planner.know(fitClass, this.#factsOf(fitClass));
        }
      } else if (step.kind === 'chosen') {
        const { wanted } = step.item;
        seen(wanted, step.choice);
        this.planner.take(wanted, step.choice);
        this.placed.push({ wanted, choice: step.choice });
      }
    }
    return this.placed.slice(before).map(({ wanted }) => wanted);
  }

  machines(): PlacementMachine[] {
    return [...this.#ids].flatMap((id) => this.planner.candidates.get(id) ?? []);
  }

  readonly #ids = new Set<MachineId>();
  /** Machines as they were set last; containers on one that is gone count as before. */
  readonly #last = new Map<MachineId, PlacementMachine>();

  set(one: PlacementMachine): void {
    this.#ids.add(one.machineId);
    this.#last.set(one.machineId, one);
    this.planner.setMachine(one);
  }

  delete(id: MachineId): void {
    this.#ids.delete(id);
    this.planner.deleteMachine(id);
  }

  /** A container ends: its machine has again what it held. */
  end(index: number): void {
    const [one] = this.placed.splice(index % Math.max(1, this.placed.length), 1);
    if (one === undefined) return;
    const { wanted, choice } = one;
    this.planner.release(wanted.id, wanted.workspaceId);
    const there = this.planner.machine(choice.machineId);
    if (there === undefined) return;
    this.set({
      ...there,
      freeCpuMillicores: there.freeCpuMillicores + wanted.cpuMillicores,
      freeMemoryBytes: there.freeMemoryBytes + wanted.memoryBytes,
      gpus: there.gpus.map((gpu) => (choice.gpuUuids.includes(gpu.uuid) ? { ...gpu, free: true } : gpu)),
    });
  }
}
