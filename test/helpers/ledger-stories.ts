// Stories of the credit ledger on a real Postgres with faults at each statement: entries that come once and twice, lost
// requests that were not lost, grants, two leaders that drain at once, and retries. The stream is in memory.
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { pino } from 'pino';
import { newId } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { StreamedEntry } from '#scheduler/stores/queues/credit-book.ts';
import { openPostgres } from '#scheduler/stores/store/postgres.ts';
import { migrate } from '#scheduler/stores/store/migrate.ts';
import type { LedgerEntry } from '#scheduler/stores/store/queries/credits.ts';
import { EVENT_COLUMNS, eventsOf } from '#scheduler/stores/store/queries/events.ts';
import type { RawEvent } from '#scheduler/stores/store/queries/events.ts';
import { insertWorkspace } from '#scheduler/stores/store/queries/workspaces.ts';
import { CreditAccounts } from '#scheduler/workspaces/credits/accounts.ts';
import { EMPTY, entryText } from '#scheduler/workspaces/credits/entries.ts';
import { LedgerDrain } from '#scheduler/workspaces/credits/ledger-drain.ts';
import { SYSTEM } from '#scheduler/workspaces/events/audit.ts';
import { EventWriter } from '#scheduler/workspaces/events/writer.ts';
import { BRIEF, FaultyDb } from './faulty-db.ts';
import type { FaultKind } from './faulty-db.ts';

const log = pino({ level: 'silent' });
const WORKSPACES = 12;
const CHECK_EVERY = 250;
/** Tries with faults; then the faults end, as a brownout does. */
const TRIES = 6;
/** Statements of a transaction of the ledger, and one more. */
const STATEMENTS = 8;

/** The stream of entries as Redis has it. A trim removes each entry once. */
class Stream {
  readonly #entries = new Map<string, string>();
  #last = 0;

  add(entry: LedgerEntry): void {
    this.#entries.set(String((this.#last += 1)), entryText(entry));
  }
  get size(): number {
    return this.#entries.size;
  }
  readonly book = {
    oldest: (most: number): Promise<StreamedEntry[]> =>
      Promise.resolve([...this.#entries].slice(0, most).map(([id, text]) => ({ id, text }))),
    trim: (taken: readonly { readonly id: string }[]): Promise<number> => {
      for (const { id } of taken) this.#entries.delete(id);
      return Promise.resolve(this.#entries.size);
    },
    putAside: (entry: StreamedEntry, reason: string): Promise<never> =>
      Promise.reject(new Error(`set aside: ${reason} ${entry.text}`)),
    putAccounts: () => Promise.resolve(),
    sums: () => Promise.resolve({ pendingMicros: 0, heldMicros: 0 }),
    lastEntry: () => Promise.resolve(undefined),
    hasEntriesUntil: () => Promise.resolve(false),
  };
}

const anEntry = fc.record({
  workspace: fc.nat(WORKSPACES - 1),
  cost: fc.integer({ min: 0, max: 1_000 }),
  lostCost: fc.integer({ min: 0, max: 1_000 }),
  said: fc.constantFrom<readonly ('complete' | 'lost')[]>(
    ['complete'],
    ['complete', 'complete'],
    ['lost'],
    ['lost', 'complete'],
    ['complete', 'lost'],
  ),
});
const aFault = fc.record({
  kind: fc.constantFrom<FaultKind>('expire', 'expire', 'lose', 'unanswered'),
  before: fc.nat(STATEMENTS),
});
const aStory = fc.record({
  entries: fc.array(anEntry, { minLength: 1, maxLength: 6 }),
  /** The other half of the entries comes after the first try. */
  isSplit: fc.boolean(),
  grant: fc.option(fc.record({ workspace: fc.nat(WORKSPACES - 1), micros: fc.integer({ min: 1, max: 500 }) })),
  leaders: fc.constantFrom(1, 2),
  faults: fc.array(fc.option(aFault), { maxLength: 4 }),
});
type Story = typeof aStory extends fc.Arbitrary<infer T> ? T : never;

/** @returns how many faults were met, by kind */
export async function playLedgerStories(
  url: string,
  stories: number,
  seed: number,
): Promise<Record<FaultKind, number>> {
  const connections = { platform: 4, reads: 1 };
  const real = await openPostgres({ url, connections, log });
  const brief = await openPostgres({ url, connections, log, deadlines: BRIEF });
  await migrate(real);
  const waiting: Story['faults'][number][] = [];
  const db = new FaultyDb(real, brief, () => waiting.shift() ?? undefined);
  const world = new LedgerWorld(db, waiting);
  try {
    await world.begin();
    for (const [at, story] of fc.sample(aStory, { numRuns: stories, seed }).entries()) {
      await world.play(story);
      if ((at + 1) % CHECK_EVERY === 0) await world.check(`after ${at + 1} stories of seed ${seed}`);
    }
    await world.check(`after all ${stories} stories of seed ${seed}`);
    return db.met;
  } finally {
    await db.close();
  }
}

class LedgerWorld {
  readonly #db: FaultyDb;
  readonly #waiting: Story['faults'];
  readonly #stream = new Stream();
  readonly #leaders: readonly LedgerDrain[];
  readonly #accounts: CreditAccounts;
  readonly #workspaces: WorkspaceId[] = [];
  readonly #costs = new Map<string, number>();
  readonly #grants = new Map<string, number>();

  constructor(db: FaultyDb, waiting: Story['faults']) {
    this.#db = db;
    this.#waiting = waiting;
    const { book } = this.#stream;
    this.#leaders = [1, 2].map(() => new LedgerDrain({ db, book, log }));
    const clock = { nowMs: () => Date.now() };
    this.#accounts = new CreditAccounts({
      db,
      book,
      events: new EventWriter(),
      drainSoon: () => undefined,
      clock,
      log,
    });
  }

  async begin(): Promise<void> {
    for (let count = 0; count < WORKSPACES; count += 1) {
      const id = newId<WorkspaceId>();
      await insertWorkspace(this.#db, { id, name: `w${count}`, signingKey: new Uint8Array([1]), isAdmin: false });
      this.#workspaces.push(id);
    }
  }

  async play(story: Story): Promise<void> {
    this.#waiting.push(...story.faults);
    this.#db.areFaultsOn = true;
    const entries = story.entries.flatMap((one) => this.#entriesOf(one));
    const half = story.isSplit ? Math.ceil(entries.length / 2) : entries.length;
    for (const entry of entries.slice(0, half)) this.#stream.add(entry);
    const granting = story.grant === null ? Promise.resolve() : this.#grant(story.grant);
    for (let tries = 1; this.#stream.size > 0 || tries === 1; tries += 1) {
      this.#db.areFaultsOn = tries < TRIES;
      // A leader that lost its lease goes on for a moment beside its successor.
      await Promise.allSettled(this.#leaders.slice(0, story.leaders).map((leader) => leader.flush()));
      if (tries === 1) for (const entry of entries.slice(half)) this.#stream.add(entry);
      if (tries > TRIES + 2) throw new Error('the stream is not drained without faults');
    }
    await granting;
    this.#waiting.length = 0;
  }

  /** Each account is the sum of its rows, each row is there once with what its request said last. */
  async check(when: string): Promise<void> {
    await this.#db.quiet();
    const { rows: wrong } = await this.#db.query(
      `select a.workspace_id, a.balance_micros, a.spent_micros, r.granted, r.cost from credit_accounts a
       join (select workspace_id, sum(grant_micros) as granted, sum(cost_micros) as cost from credit_ledger group by 1) r
         on r.workspace_id = a.workspace_id
       where a.balance_micros <> r.granted - r.cost or a.spent_micros <> r.cost`,
    );
    assert.deepEqual(wrong, [], `accounts that are not the sum of their rows, ${when}`);
    const { rows } = await this.#db.query<{ request_id: string; amount: number }>(
      `select request_id, case kind when 'grant' then grant_micros else cost_micros end as amount from credit_ledger`,
    );
    assert.equal(rows.length, this.#costs.size + this.#grants.size, `rows, ${when}`);
    const differing = rows.filter(
      ({ request_id: id, amount }) => (this.#costs.get(id) ?? this.#grants.get(id)) !== amount,
    );
    assert.deepEqual(differing, [], `rows that are not what was said, ${when}`);
    // An event is there exactly where its change is.
    const events = await this.#db.query<RawEvent>(`select ${EVENT_COLUMNS} from events`);
    const told = events.rows
      .flatMap(eventsOf)
      .map(({ data }) => Number((data['attrs'] as Readonly<Record<string, unknown>>)['amount_micros']))
      .toSorted((a, b) => a - b);
    assert.deepEqual(
      told,
      [...this.#grants.values()].toSorted((a, b) => a - b),
      `events of grants, ${when}`,
    );
  }

  #entriesOf({ workspace, cost, lostCost, said }: Story['entries'][number]): LedgerEntry[] {
    const requestId = `req_${newId()}`;
    this.#costs.set(requestId, said.includes('complete') ? cost : lostCost);
    return said.map((status) => ({
      ...EMPTY,
      requestId,
      kind: 'request',
      workspaceId: this.#workspaceAt(workspace),
      costMicros: status === 'lost' ? lostCost : cost,
      status,
      createdAtMs: Date.now(),
    }));
  }

  /** Grants with a key until it is answered, as a person or a program does. */
  async #grant({ workspace, micros }: { readonly workspace: number; readonly micros: number }): Promise<void> {
    const key = newId();
    const id = this.#workspaceAt(workspace);
    this.#grants.set(`grant:${id}:${key}`, micros);
    for (;;) {
      const isGranted = await this.#accounts.grant(id, { micros, key }, SYSTEM).then(
        () => true,
        () => false,
      );
      if (isGranted) return;
    }
  }

  #workspaceAt(index: number): WorkspaceId {
    return this.#workspaces[index] ?? newId<WorkspaceId>();
  }
}
