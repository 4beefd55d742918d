// Classes that limits of their workspace keep back: those that all its containers together may not pass, and those in
// markets. When the workspace has less, the oldest class that may have more is tried, and the next one follows when
// that has got a place or none. So what the end of a container costs does not grow with the classes that wait for it.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { Grouped } from '#shared/grouped.ts';
import type { Market } from '../../domain/shares.ts';
import type { FitClass, Item } from './fit-class.ts';
import { isOlder } from './fit-class.ts';
import type { Ledger } from './ledger.ts';
import { isOver } from './ledger.ts';

export class KeptBack {
  readonly #ledger: Ledger;
  readonly #tried: (fitClass: FitClass) => void;
  readonly #classes = new Grouped<WorkspaceId, FitClass>();
  /** Workspaces that have less than when all of these classes were compared with the limits. */
  readonly #freed = new Set<WorkspaceId>();

  /** @param tried - told of a class that is to be tried again */
  constructor(ledger: Ledger, tried: (fitClass: FitClass) => void) {
    this.#ledger = ledger;
    this.#tried = tried;
  }

  /** Whether one more container of the class would pass a limit on all that the workspace has. */
  isOver(fitClass: FitClass): boolean {
    const { quota } = fitClass.facts;
    return quota !== undefined && isOver(this.#ledger.useOf(fitClass.workspaceId), fitClass, quota);
  }

  /** @param fullIn - markets in which a limit keeps the class back, beside those that are known */
  add(fitClass: FitClass, fullIn: readonly Market[]): void {
    const more = fullIn.filter((name) => !fitClass.fullIn.includes(name));
    if (more.length > 0) fitClass.fullIn = [...fitClass.fullIn, ...more];
    this.#classes.add(fitClass.workspaceId, fitClass);
  }

  /** Nobody waits in the class any more. */
  left(fitClass: FitClass): void {
    this.#classes.delete(fitClass.workspaceId, fitClass);
    this.tryNext(fitClass.workspaceId);
  }

  /** The workspace has less than before. */
  hasLess(workspaceId: WorkspaceId): void {
    this.#freed.add(workspaceId);
    this.tryNext(workspaceId);
  }

  /** Tries the oldest class that is kept back no more, if some was before the workspace had less. */
  tryNext(workspaceId: WorkspaceId): void {
    if (!this.#freed.has(workspaceId)) return;
    let first: Item | undefined;
    for (const { head } of this.#classes.of(workspaceId))
      if (head !== undefined && (first === undefined || isOlder(head, first)) && this.#mayHaveMore(head.fitClass))
        first = head;
    if (first === undefined) this.#freed.delete(workspaceId);
    else this.#tryAgain(first.fitClass);
  }

  /** Tries all classes of the workspace, because its limits are others. */
  tryAll(workspaceId: WorkspaceId): void {
    for (const fitClass of [...this.#classes.of(workspaceId)]) this.#tryAgain(fitClass);
  }

  /** Tries all classes of all workspaces. */
  clear(): void {
    for (const workspaceId of [...this.#classes.keys()]) this.tryAll(workspaceId);
    this.#freed.clear();
  }

  #mayHaveMore(fitClass: FitClass): boolean {
    const { isHeld, fullIn, tenant } = fitClass;
    const { markets } = this.#ledger;
    return isHeld
      ? !this.isOver(fitClass)
      : fullIn.some((name) => !markets.isFull(tenant, markets.get(name), fitClass));
  }

  #tryAgain(fitClass: FitClass): void {
    this.#classes.delete(fitClass.workspaceId, fitClass);
    fitClass.isHeld = false;
    fitClass.fullIn = [];
    this.#tried(fitClass);
  }
}
