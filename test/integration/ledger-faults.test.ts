// The credit ledger with faults at each statement of its transactions. `npm run hosts -- ledger` plays 10,000 stories.
import { expect } from 'vitest';
import { playLedgerStories } from '../helpers/ledger-stories.ts';
import { test } from '../helpers/services.ts';

test('with faults at each statement, balances stay the sums of their rows, and events go with their changes', async ({
  postgres,
}) => {
  const met = await playLedgerStories(postgres.url, 120, Date.now() & 0xffff);
  for (const count of Object.values(met)) expect(count).toBeGreaterThan(0);
});
