// 10,000 stories of the credit ledger, with faults at each statement of its transactions.
import { expect } from 'vitest';
import { playLedgerStories } from '../helpers/ledger-stories.ts';
import { test } from '../helpers/services.ts';

const STORIES = Number(process.env['LS_LEDGER_STORIES'] ?? 10_000);

test(
  `${STORIES} stories with faults at each statement leave balances that are the sums of their rows`,
  {
    timeout: 1_800_000,
  },
  async ({ postgres }) => {
    const met = await playLedgerStories(postgres.url, STORIES, Date.now() & 0xffff);
    for (const count of Object.values(met)) expect(count).toBeGreaterThan(0);
  },
);
