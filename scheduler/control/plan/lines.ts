// Classes that are to be searched for, in the order in which their containers are tried. By share, each workspace has a
// line for each market; the line that stands best is first, and the oldest container of that line. By arrival, all are
// in one line.
import type { FitClass, Item } from './fit-class.ts';
import { isOlder } from './fit-class.ts';
import { Heap } from './heap.ts';
import type { Markets, MarketState, Standing, Tenant } from './markets.ts';

/** Whether the first container goes first, by how their workspaces stand and then by age. */
export function goesFirst(a: Item, of: Standing, b: Item, than: Standing): boolean {
  if (of.tier !== than.tier) return of.tier < than.tier;
  if (of.share !== than.share) return of.share < than.share;
  return isOlder(a, b);
}

class Line {
  readonly tenant: Tenant | undefined;
  readonly market: MarketState | undefined;
  readonly classes = new Heap<FitClass>(
    (a, b) => isOlder(headOf(a), headOf(b)),
    (fitClass, at) => (fitClass.lineAt = at),
  );
  at = -1;

  constructor(tenant: Tenant | undefined, market: MarketState | undefined) {
    this.tenant = tenant;
    this.market = market;
  }

  get head(): Item {
    return headOf(this.classes.first());
  }
}

/** A class in a line has a container that waits. */
function headOf(fitClass: FitClass | undefined): Item {
  if (fitClass?.head === undefined) throw new Error('nobody waits in a class that has its turn');
  return fitClass.head;
}

export class Lines {
  readonly #markets: Markets;
  readonly #lines = new Heap<Line>(
    (a, b) => goesFirst(a.head, this.#standing(a), b.head, this.#standing(b)),
    (line, at) => (line.at = at),
  );
  readonly #byTenant = new Map<Tenant | undefined, Line[]>();
  readonly #byClass = new Map<FitClass, Line>();
  #byShare = true;
  /** Version of the markets by which the lines are in order. */
  #version = -1;

  constructor(markets: Markets) {
    this.#markets = markets;
  }

  /** The container that goes first, and how its workspace stands. */
  first(): { readonly item: Item; readonly standing: Standing } | undefined {
    if (this.#byShare && this.#version !== this.#markets.version) this.#rebuild();
    const line = this.#lines.first();
    return line && { item: line.head, standing: this.#standing(line) };
  }

  /** The same of those that wait in one market. */
  firstIn(market: MarketState): ReturnType<Lines['first']> {
    let first: ReturnType<Lines['first']>;
    for (const line of this.#lines.items) {
      if (line.market !== market) continue;
      const standing = this.#standing(line);
      if (first === undefined || goesFirst(line.head, standing, first.item, first.standing))
        first = { item: line.head, standing };
    }
    return first;
  }

  get isEmpty(): boolean {
    return this.#lines.size === 0;
  }

  /** The classes: first one of each line, the lines that stand best among the first. */
  *classes(): Generator<FitClass> {
    for (const { classes } of this.#lines.items) yield* classes.items.slice(0, 1);
    for (const { classes } of this.#lines.items) yield* classes.items.slice(1);
  }

  /** Puts the class there where its oldest container belongs now, or takes it out. */
  update(fitClass: FitClass): void {
    const isReady = fitClass.head !== undefined && !fitClass.isBlocked && !fitClass.isHeld;
    const line = this.#byClass.get(fitClass);
    if (line === undefined) {
      if (isReady) this.#add(fitClass);
    } else if (isReady) {
      line.classes.moveAt(fitClass.lineAt);
      this.#lines.moveAt(line.at);
    } else this.#remove(line, fitClass);
  }

  #add(fitClass: FitClass): void {
    const line = this.#lineOf(fitClass);
    this.#byClass.set(fitClass, line);
    line.classes.push(fitClass);
    if (line.at === -1) this.#lines.push(line);
    else this.#lines.moveAt(line.at);
  }

  #remove(line: Line, fitClass: FitClass): void {
    this.#byClass.delete(fitClass);
    line.classes.removeAt(fitClass.lineAt);
    if (line.classes.size > 0) {
      this.#lines.moveAt(line.at);
      return;
    }
    this.#lines.removeAt(line.at);
    const rest = (this.#byTenant.get(line.tenant) ?? []).filter((one) => one !== line);
    if (rest.length > 0) this.#byTenant.set(line.tenant, rest);
    else this.#byTenant.delete(line.tenant);
  }

  /** The workspace stands better or worse in that market; undefined: in all of them. */
  stands(tenant: Tenant, market: MarketState | undefined): void {
    for (const line of this.#byTenant.get(tenant) ?? [])
      if (market === undefined || line.market === market) this.#lines.moveAt(line.at);
  }

  setOrder(byShare: boolean): void {
    this.#byShare = byShare;
    this.#rebuild();
  }

  #rebuild(): void {
    const classes = [...this.#byClass.keys()];
    this.#lines.clear();
    this.#byTenant.clear();
    this.#version = this.#markets.version;
    this.#byClass.clear();
    for (const fitClass of classes) this.#add(fitClass);
  }

  #lineOf(fitClass: FitClass): Line {
    const tenant = this.#byShare ? fitClass.tenant : undefined;
    const market = this.#byShare ? fitClass.market : undefined;
    const lines = this.#byTenant.get(tenant);
    let line = lines?.find((one) => one.market === market);
    if (line !== undefined) return line;
    line = new Line(tenant, market);
    if (lines === undefined) this.#byTenant.set(tenant, [line]);
    else lines.push(line);
    return line;
  }

  #standing({ tenant, market }: Line): Standing {
    return tenant === undefined ? FIRST : this.#markets.standing(tenant, market);
  }
}

const FIRST: Standing = { tier: 0, share: 0 };
