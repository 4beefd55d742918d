/**
 * Counts what a build writes: what its steps write to their root and to volumes of their image, layers of copied files,
 * and downloaded packages. Must stay true: a step counts once more at its end, so that a short one is not missed.
 */
import type { ContainerRuntime } from '../containers/runtime.ts';

export interface WrittenParts {
  readonly runtime: Pick<ContainerRuntime, 'writtenBytes' | 'imageVolumes' | 'image'>;
  /** Counts blocks of each of these folders, past their permissions, as far as it can. */
  readonly countVolumes: (folders: readonly string[]) => Promise<ReadonlyMap<string, number>>;
  readonly mostBytes: number;
  /** Called each time that the bound is found passed. */
  readonly onOver: () => void;
  /** Called when a step's volumes cannot be counted. */
  readonly onUncounted: () => void;
}

/** Failed counts of a step's volumes in a row that end its build: an engine may fail once. */
const MOST_FAILED = 2;

export class Written {
  readonly #parts: WrittenParts;
  readonly #bytesOf = new Map<string, number>();
  /** Failed counts in a row of each step's volumes. */
  readonly #failedOf = new Map<string, number>();
  /** The layer before, in a run of the engine's builder. */
  #layer: { readonly id: string; readonly bytes: number } | undefined;
  #layers = Promise.resolve();

  constructor(parts: WrittenParts) {
    this.#parts = parts;
  }

  /** Counts the container of a step. */
  async step(dockerId: string): Promise<void> {
    const { runtime, countVolumes, onUncounted } = this.#parts;
    const inRoot = await runtime.writtenBytes(dockerId);
    // Known bytes count at once.
    if (inRoot !== undefined) this.set(dockerId, inRoot);
    const volumes = await runtime.imageVolumes(dockerId);
    if (volumes === undefined || volumes.length === 0) return;
    const counted = await countVolumes(volumes).catch((): ReadonlyMap<string, number> => new Map());
    for (const [folder, bytes] of counted) this.set(folder, bytes);
    const failed = volumes.every((folder) => counted.has(folder)) ? 0 : (this.#failedOf.get(dockerId) ?? 0) + 1;
    this.#failedOf.set(dockerId, failed);
    if (failed >= MOST_FAILED) onUncounted();
  }

  /** A run of the engine's builder begins. */
  engine(): void {
    this.#layers = this.#layers.then(() => (this.#layer = undefined)).then(() => undefined);
  }

  /** The engine's builder has made a layer, or taken one from before. Layers are looked at in turn. */
  layer(imageId: string): void {
    this.#layers = this.#layers.then(() => this.#look(imageId)).catch(() => undefined);
  }

  /** Returns when all layers so far are counted. */
  settled(): Promise<void> {
    return this.#layers;
  }

  async #look(id: string): Promise<void> {
    const bytes = (await this.#parts.runtime.image(id))?.bytes;
    if (bytes === undefined) return;
    const before = this.#layer;
    this.#layer = { id, bytes };
    if (before !== undefined && before.id !== id) this.set(`layer ${id}`, Math.max(0, bytes - before.bytes));
  }

  /** Takes the bytes of a source; a source that shrinks has written all the same. */
  set(source: string, bytes: number): void {
    this.#bytesOf.set(source, Math.max(this.#bytesOf.get(source) ?? 0, bytes));
    const sum = [...this.#bytesOf.values()].reduce((all, one) => all + one, 0);
    if (sum > this.#parts.mostBytes) this.#parts.onOver();
  }
}
