// Whether models are served now, as the catalog shows it. A look is kept for a few seconds: the list needs no token.
import type { QueueName } from '#shared/domain/ids.ts';
import type { ModelRow } from '../../../stores/store/queries/models.ts';
import { BoundedMap } from '../../../workspaces/deployments/bounded-map.ts';
import type { Backends } from './backends.ts';
import type { ModelStatus } from './model-page.ts';

const KEPT_MS = 5_000;
const MOST_KEPT = 5_000;

export class ModelStatuses {
  readonly #backends: Pick<Backends, 'targetOf'>;
  readonly #hasContainers: (queue: QueueName) => boolean;
  readonly #nowMs: () => number;
  readonly #kept = new BoundedMap<string, { readonly status: Promise<ModelStatus>; readonly untilMs: number }>(
    MOST_KEPT,
  );

  constructor(backends: Pick<Backends, 'targetOf'>, hasContainers: (queue: QueueName) => boolean, nowMs: () => number) {
    this.#backends = backends;
    this.#hasContainers = hasContainers;
    this.#nowMs = nowMs;
  }

  of(row: ModelRow): Promise<ModelStatus> {
    const nowMs = this.#nowMs();
    const key = `${row.id} ${row.updatedAtMs}`;
    const kept = this.#kept.get(key);
    if (kept !== undefined && kept.untilMs > nowMs) return kept.status;
    const status = this.#look(row);
    this.#kept.set(key, { status, untilMs: nowMs + KEPT_MS });
    return status;
  }

  async #look({ active, workspaceId, backends }: ModelRow): Promise<ModelStatus> {
    if (!active) return 'disabled';
    let isServed = false;
    for (const backend of backends) {
      if (backend.kind === 'external') return 'ready';
      const target = await Promise.resolve(this.#backends.targetOf(workspaceId, backend)).catch(() => undefined);
      if (target?.active !== true) continue;
      if (this.#hasContainers(target.queue)) return 'ready';
      isServed = true;
    }
    return isServed ? 'cold' : 'disabled';
  }
}
