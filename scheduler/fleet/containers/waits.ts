// Operations that wait until their container runs. A change of the container wakes them; nothing is polled.
import type { ContainerId, WorkspaceId } from '#shared/domain/ids.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { Queryable } from '../../stores/store/db.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import { containerById } from '../../stores/store/queries/containers.ts';
import { rejectionsOf } from './container-entry.ts';
import type { ContainerEntry } from './container-entry.ts';
import type { ContainerEntryChange, ContainerRegistry } from './container-registry.ts';

/** Time for which a container that does not live is not looked for again: anybody may ask for such ids. */
const GONE_MS = 5_000;
const MOST_GONE = 1024;

const ID = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,200}$/;

export type Waited =
  /** The container runs; the row is as of now. */
  | { readonly ok: true; readonly row: ContainerRow }
  /** The container does not run; the text says why, for its owner. */
  | { readonly ok: false; readonly why: 'unknown' | 'ended' | 'late' | 'left'; readonly reason: string };

export class ContainerWaits {
  readonly #containers: Pick<ContainerRegistry, 'get' | 'readAgain'>;
  readonly #db: Queryable;
  readonly #waiting = new Map<ContainerId, Set<() => void>>();
  /** Lookups of containers that do not live, the oldest first. */
  readonly #gone = new Map<
    ContainerId,
    { readonly untilMs: number; readonly row: Promise<ContainerRow | undefined> }
  >();

  constructor(containers: Pick<ContainerRegistry, 'get' | 'readAgain'>, db: Queryable) {
    this.#containers = containers;
    this.#db = db;
  }

  containerChanged({ entry }: ContainerEntryChange): void {
    this.#gone.delete(entry.row.id);
    for (const look of this.#waiting.get(entry.row.id) ?? []) look();
  }

  /**
   * A container of the workspace, in any state; undefined: it has none by that id.
   * @param workspaceId - null: of any workspace (administrator)
   */
  async find(containerId: string, workspaceId: WorkspaceId | null): Promise<ContainerRow | undefined> {
    const row = await this.#row(containerId as ContainerId);
    return row !== undefined && (workspaceId === null || row.workspaceId === workspaceId) ? row : undefined;
  }

  /**
   * Waits until the container runs.
   * @param signal - ends the wait: nobody wants the answer any more
   */
  async waitUntilRunning(containerId: string, withinMs: number, signal?: AbortSignal): Promise<Waited> {
    const id = containerId as ContainerId;
    if ((await this.#row(id)) === undefined)
      return { ok: false, why: 'unknown', reason: `Container not found: ${containerId}` };
    const { promise, resolve, reject } = Promise.withResolvers<Waited>();
    const look = (): void => {
      const row = this.#containers.get(id)?.row;
      if (row === undefined) this.#row(id).then((ended) => resolve(whenEnded(ended)), reject);
      else if (row.state === 'RUNNING' || row.state === 'DRAINING') resolve({ ok: true, row });
      else if (row.state === 'STOPPING') resolve(whenEnded(row));
    };
    const late = setTimeout(() => {
      const reason = `the container does not run after ${withinMs / 1000} s: ${stateText(this.#containers.get(id))}`;
      resolve({ ok: false, why: 'late', reason });
    }, withinMs);
    const left = (): void => resolve({ ok: false, why: 'left', reason: 'the caller left' });
    signal?.addEventListener('abort', left, { once: true });
    if (signal?.aborted === true) left();
    const waiting = this.#waiting.get(id) ?? new Set();
    this.#waiting.set(id, waiting.add(look));
    look();
    try {
      return await promise;
    } finally {
      clearTimeout(late);
      signal?.removeEventListener('abort', left);
      waiting.delete(look);
      if (waiting.size === 0 && this.#waiting.get(id) === waiting) this.#waiting.delete(id);
    }
  }

  async #row(id: ContainerId): Promise<ContainerRow | undefined> {
    const known = this.#containers.get(id)?.row;
    if (known !== undefined) return known;
    // The database can neither store nor compare some texts that callers send.
    if (!ID.test(id)) return undefined;
    const nowMs = performance.now();
    const gone = this.#gone.get(id);
    if (gone !== undefined && gone.untilMs > nowMs) return await gone.row;
    const row = this.#lookedUp(id);
    this.#gone.delete(id);
    this.#gone.set(id, { untilMs: nowMs + GONE_MS, row });
    for (const [oldest] of this.#gone) {
      if (this.#gone.size <= MOST_GONE) break;
      this.#gone.delete(oldest);
    }
    try {
      const found = await row;
      if (found !== undefined && !isTerminalContainer(found.state)) this.#gone.delete(id);
      return found;
    } catch (error) {
      this.#gone.delete(id);
      throw error;
    }
  }

  async #lookedUp(id: ContainerId): Promise<ContainerRow | undefined> {
    const row = await containerById(this.#db, id);
    // Another replica may have made it just now.
    if (row !== undefined && !isTerminalContainer(row.state)) await this.#containers.readAgain([id]);
    return this.#containers.get(id)?.row ?? row;
  }
}

function whenEnded(row: ContainerRow | undefined): Waited {
  if (row === undefined) return { ok: false, why: 'unknown', reason: 'the container is gone' };
  const how = row.state === 'STOPPING' ? 'is stopping' : row.startedAtMs === null ? 'did not start' : 'has ended';
  const why = row.message ?? row.reason ?? '';
  const code = row.message === null && row.exitCode !== null ? `, exit code ${row.exitCode}` : '';
  return { ok: false, why: 'ended', reason: `the container ${how}${why === '' ? '' : `: ${why}`}${code}` };
}

function stateText(entry: Pick<ContainerEntry, 'row' | 'refusal'> | undefined): string {
  if (entry?.row.state === 'UNKNOWN') return 'its machine is not connected';
  if (entry?.row.state !== 'PENDING') return 'it is still starting';
  const refusals = Object.entries(rejectionsOf(entry) ?? {}).filter(([, count]) => count > 0);
  const reasons = refusals.map(([reason, count]) => `${reason} ${count}`).join(', ');
  const why = reasons === '' ? '' : `, machines refused it (${reasons})`;
  return `no machine has taken it yet${why}; \`longshore explain ${entry.row.id}\` says until when it waits`;
}
