// Names beside ids in lists. A stub never changes its name and a workspace hardly ever, so both are kept, bounded.
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { BoundedMap } from '../deployments/bounded-map.ts';
import type { Queryable } from '../store/db.ts';
import { stubById } from '../store/queries/stubs.ts';
import { workspaceById } from '../store/queries/workspaces.ts';

const MAX_ENTRIES = 10_000;
/** Look-ups at a time for one list. */
const AT_ONCE = 20;

export interface StubFacts {
  readonly name: string;
  readonly type: string;
  readonly appId: string;
}

export class Names {
  readonly #db: Queryable;
  readonly #stubs = new BoundedMap<StubId, StubFacts>(MAX_ENTRIES);

  constructor(db: Queryable) {
    this.#db = db;
  }

  async ofWorkspace(id: WorkspaceId): Promise<string> {
    return (await workspaceById(this.#db, id))?.name ?? '';
  }

  async stub(id: StubId): Promise<StubFacts | undefined> {
    const known = this.#stubs.get(id);
    if (known !== undefined) return known;
    const row = await stubById(this.#db, id);
    if (row === undefined) return undefined;
    const facts = { name: row.name, type: row.type, appId: row.appId };
    this.#stubs.set(id, facts);
    return facts;
  }

  async ofStubs(ids: readonly StubId[]): Promise<ReadonlyMap<StubId, string>> {
    const distinct = [...new Set(ids)];
    const out = new Map<StubId, string>();
    for (let from = 0; from < distinct.length; from += AT_ONCE) {
      await Promise.all(
        distinct.slice(from, from + AT_ONCE).map(async (id) => {
          const facts = await this.stub(id);
          if (facts !== undefined) out.set(id, facts.name);
        }),
      );
    }
    return out;
  }
}
