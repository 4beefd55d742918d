// Credits of workspaces: holds and charges of requests on every replica; the ledger's drain, lost holds and the time of
// containers on the leader.
import type { Part } from '#shared/lifecycle.ts';
import { whileLeading } from '../cluster/while-leading.ts';
import { CreditBook } from '../stores/queues/credit-book.ts';
import { CreditAccounts } from '../workspaces/credits/accounts.ts';
import { Charges, HOLD_MS, MOST_LEDGER_ENTRIES } from '../workspaces/credits/charges.ts';
import { ComputeRows } from '../workspaces/credits/compute-rows.ts';
import { LedgerDrain } from '../workspaces/credits/ledger-drain.ts';
import { settleLostHolds } from '../workspaces/credits/lost-holds.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Events } from './events.ts';
import type { Infrastructure } from './infrastructure.ts';

/** Interval of looks at holds that have lapsed. */
const LOST_MS = 5_000;
/** Interval of looks at containers that ran. */
const COMPUTE_MS = 60_000;

export interface CreditParts {
  readonly charges: Charges;
  readonly creditAccounts: CreditAccounts;
  readonly parts: readonly Part[];
}

export function openCredits(
  { db, general, keys, clock, log, registry }: Infrastructure,
  { leader, leaderLoop, redisData }: Pick<ClusterState, 'leader' | 'leaderLoop' | 'redisData'>,
  { writer: events }: Pick<Events, 'writer'>,
): CreditParts {
  const book = new CreditBook({ client: general, keys, holdMs: HOLD_MS, mostEntries: MOST_LEDGER_ENTRIES });
  const charges = new Charges({ db, book, clock, log });
  const ledgerDrain = new LedgerDrain({ db, book, log, registry });
  const drainSoon = (): void => {
    if (leader.isLeader()) ledgerDrain.wake();
  };
  const creditAccounts = new CreditAccounts({ db, book, events, drainSoon, clock, log });
  let endDrain = (): void => undefined;
  const compute = new ComputeRows(db, clock);
  const loops = [
    leaderLoop({
      name: 'time of containers',
      everyMs: COMPUTE_MS,
      round: (signal) => compute.write(signal),
      failed: 'the time of containers is written later',
    }),
    leaderLoop({
      name: 'lost requests to models',
      everyMs: LOST_MS,
      round: async () => {
        if ((await settleLostHolds({ book, clock, log })) > 0) ledgerDrain.wake();
      },
      failed: 'lost requests to models are settled later',
    }),
  ];
  const part: Part = {
    name: 'credits',
    start: () => {
      charges.start();
      charges.onSettled(() => ledgerDrain.wake());
      redisData.onLost(() => void charges.redisLost());
      endDrain = whileLeading(leader, (signal) => void ledgerDrain.run(signal));
    },
    stop: async () => {
      await charges.stop();
      const isLeader = leader.isLeader();
      endDrain();
      if (isLeader) await ledgerDrain.flush();
    },
  };
  return { charges, creditAccounts, parts: [part, ...loops] };
}
