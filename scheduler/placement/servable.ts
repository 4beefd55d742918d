// Can a stub ever be served? Asked at every call, answered from memory: a call for a GPU that no machine has is refused at once instead of waiting for nothing.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { StubConfig, Target } from '../deployments/stub-config.ts';
import { capacityOf } from '../fleet/capacity.ts';
import type { Machines } from '../fleet/machines.ts';
import { poolNameOf } from '../containers/spec.ts';
import { tooLarge, unservable } from './serve.ts';
import type { ServingMachine } from './serve.ts';

const MIB = 1024 * 1024;

export interface ServingDoubt {
  readonly says: string;
  /** What becomes of calls. */
  readonly effect: string;
}

export class Servable {
  readonly #machines: Machines;
  /** Grows with every change of a machine or pool. */
  #version = 0;
  readonly #known = new WeakMap<StubConfig, { readonly version: number; readonly text: string | undefined }>();

  constructor(machines: Machines) {
    this.#machines = machines;
    machines.onChange(() => (this.#version += 1));
    machines.onWritten(() => (this.#version += 1));
  }

  /** The sentence for the caller; undefined: some machine that is registered, or expected, may serve it. */
  refusal({ config, workspaceId }: Pick<Target, 'config' | 'workspaceId'>): string | undefined {
    const poolName = poolNameOf(config.extra);
    if (config.gpuCount === 0 && poolName === '') return undefined;
    const known = this.#known.get(config);
    if (known?.version === this.#version) return known.text;
    const { gpu, gpuCount } = config;
    const text = unservable({ workspaceId, poolName, gpu, gpuCount }, this.#serving());
    this.#known.set(config, { version: this.#version, text });
    return text;
  }

  /** For whoever deploys it: why its calls would be refused or wait for a larger machine; undefined: some machine may serve it. */
  doubt(workspaceId: WorkspaceId, config: StubConfig): ServingDoubt | undefined {
    const refused = this.refusal({ workspaceId, config });
    if (refused !== undefined) return { says: refused, effect: 'calls are refused until one does' };
    const { cpuMillicores, memoryMib } = config;
    const poolName = poolNameOf(config.extra);
    const says = tooLarge({ workspaceId, poolName, cpuMillicores, memoryBytes: memoryMib * MIB }, this.#serving());
    return says === undefined ? undefined : { says, effect: 'calls wait for one that does' };
  }

  #serving(): readonly ServingMachine[] {
    // One that did not come in time comes no more, unless it is admitted anew.
    const coming = [...this.#machines.all()].filter(({ health }) => health !== 'EXPIRED');
    return coming.map((machine) => {
      const { row, health, inventory } = machine;
      const { totalCpuMillicores, totalMemoryBytes } = capacityOf(machine, []);
      return {
        poolName: row.poolName,
        poolOwner: row.poolWorkspaceId,
        requiresPoolSelector: row.poolSettings.requiresPoolSelector,
        isExpected: health === 'PENDING',
        gpuModels: (inventory?.gpus ?? []).map((device) => device.model),
        size: { cpuMillicores: totalCpuMillicores, memoryBytes: totalMemoryBytes },
      };
    });
  }
}
