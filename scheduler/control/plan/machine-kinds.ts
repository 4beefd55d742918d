// Machines alike in all that lasts, with the classes that such a machine could ever take. A machine that changed is
// compared with these classes alone.
import type { MachineId } from '#shared/domain/ids.ts';
import type { PlacementMachine } from './filter.ts';
import { keptForGpus, mayLease } from './filter.ts';
import type { FitClass } from './fit-class.ts';

export interface MachineKind {
  readonly sample: PlacementMachine;
  /** Classes that such a machine could ever take, by their number of GPUs. */
  readonly classes: FitClass[][];
}

export class MachineKinds {
  readonly #kinds = new Map<string, MachineKind>();
  /** Kinds of machines, as these were when they changed last. */
  readonly #known = new Map<MachineId, { readonly lasting: string; readonly kind: MachineKind }>();

  /**
   * @param lasting - text of all that lasts about the machine (filter.ts)
   * @param classes - all that there are
   */
  of(machine: PlacementMachine, lasting: string, classes: Iterable<FitClass>): MachineKind {
    const { machineId, poolOwner, totalCpuMillicores, totalMemoryBytes } = machine;
    const known = this.#known.get(machineId);
    if (
      known?.lasting === lasting &&
      known.kind.sample.poolOwner === poolOwner &&
      known.kind.sample.totalCpuMillicores === totalCpuMillicores &&
      known.kind.sample.totalMemoryBytes === totalMemoryBytes
    )
      return known.kind;
    const key = [lasting, poolOwner, totalCpuMillicores, totalMemoryBytes].join('\n');
    let kind = this.#kinds.get(key);
    if (kind === undefined) {
      this.#kinds.set(key, (kind = { sample: machine, classes: [] }));
      for (const fitClass of classes) addTo(kind, fitClass);
    }
    this.#known.set(machineId, { lasting, kind });
    return kind;
  }

  /** There is a class that was not there. */
  add(fitClass: FitClass): void {
    for (const kind of this.#kinds.values()) addTo(kind, fitClass);
  }

  clear(): void {
    this.#kinds.clear();
    this.#known.clear();
  }
}

function addTo({ sample, classes }: MachineKind, fitClass: FitClass): void {
  if (fitClass.couldEverFit(sample)) (classes[fitClass.gpuCount] ??= []).push(fitClass);
}

/** Visits the blocked classes of which a machine has the amounts free. */
export function eachAffordable(
  machine: PlacementMachine,
  { classes }: MachineKind,
  visit: (fitClass: FitClass) => void,
): void {
  const { freeCpuMillicores, freeMemoryBytes } = machine;
  const kept = keptForGpus(machine);
  const freeGpus = machine.gpus.filter(mayLease).length;
  for (let gpuCount = 0; gpuCount <= freeGpus; gpuCount += 1) {
    const cpuMillicores = gpuCount === 0 ? freeCpuMillicores - kept.cpuMillicores : freeCpuMillicores;
    const memoryBytes = gpuCount === 0 ? freeMemoryBytes - kept.memoryBytes : freeMemoryBytes;
    for (const fitClass of classes[gpuCount] ?? [])
      if (fitClass.isBlocked && fitClass.cpuMillicores <= cpuMillicores && fitClass.memoryBytes <= memoryBytes)
        visit(fitClass);
  }
}
