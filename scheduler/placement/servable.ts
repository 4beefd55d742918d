// Can a stub ever be served? Asked at every call, answered from memory: a call for a GPU that no machine has is refused at once instead of waiting for nothing.
import type { StubConfig, Target } from '../deployments/stub-config.ts';
import type { Machines } from '../fleet/machines.ts';
import { poolNameOf } from '../containers/spec.ts';
import { unservable } from './serve.ts';

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
  refusal({ config, workspaceId }: Target): string | undefined {
    const poolName = poolNameOf(config.extra);
    if (config.gpuCount === 0 && poolName === '') return undefined;
    const known = this.#known.get(config);
    if (known?.version === this.#version) return known.text;
    const { gpu, gpuCount } = config;
    // One that did not come in time comes no more, unless it is admitted anew.
    const coming = [...this.#machines.all()].filter(({ health }) => health !== 'EXPIRED');
    const machines = coming.map(({ row, health, inventory }) => ({
      poolName: row.poolName,
      poolOwner: row.poolWorkspaceId,
      requiresPoolSelector: row.poolSettings.requiresPoolSelector,
      isExpected: health === 'PENDING',
      gpuModels: (inventory?.gpus ?? []).map((device) => device.model),
    }));
    const text = unservable({ workspaceId, poolName, gpu, gpuCount }, machines);
    this.#known.set(config, { version: this.#version, text });
    return text;
  }
}
