// Machines that cannot go on, in the real daemon: its provider makes instances, and cannot list or terminate them.
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { growthLines } from '#cli/commands/pool.ts';
import { jsonOf } from '../helpers/platform.ts';
import { aProviderWorld } from '../helpers/provider-world.ts';
import type { ProviderWorld } from '../helpers/provider-world.ts';
import { waitFor } from '../helpers/services.ts';

/** A verb fails while its file is there. */
const PROGRAM = `#!/bin/sh
cat > /dev/null
[ -e "$FOLDER/fails-$1" ] && { echo "$1 has no quota" >&2; exit 3; }
case $1 in
  create) echo '{"instanceId": "i-1"}' ;;
  list) echo '{"instances": []}' ;;
esac
`;
const SETTINGS = { provider: 'cloud', machineCpuCores: 2, machineMemoryMib: 2048, minMachines: 1, demandSeconds: 0 };

type Json = Readonly<Record<string, unknown>>;

let set: ProviderWorld['set'];
let replica: ProviderWorld['replica'];
let stop: ProviderWorld['stop'];

const pool = async (): Promise<Json> =>
  jsonOf<{ readonly pool: Json }>(await set.call(replica, '/api/v1/gateway/pools/grown')).pool;
const verbFails = (verb: string): void => writeFileSync(join(set.directory, `fails-${verb}`), '');
const verbWorks = (verb: string): void => rmSync(join(set.directory, `fails-${verb}`));
const stuckOf = ({ growth }: Json): readonly Json[] =>
  (growth as { readonly stuck?: readonly Json[] } | null)?.stuck ?? [];

beforeAll(async () => {
  ({ set, replica, stop } = await aProviderWorld(PROGRAM));
}, 120_000);
afterAll(() => stop());

test('pool show names a machine whose instance no listing shows, and its terminate that fails, with what to run', async () => {
  for (const verb of ['create', 'list', 'terminate']) verbFails(verb);
  await set.gateway(replica, '/pools', { name: 'grown', settings: SETTINGS });
  const unlisted = await waitFor(
    async () => {
      const shown = await pool();
      return stuckOf(shown).length > 0 ? shown : undefined;
    },
    'the machine on its way is told',
    150_000,
  );
  const [coming] = stuckOf(unlisted);
  const machineId = String(coming?.['machineId']);
  expect(coming).toMatchObject({
    instanceId: '',
    verb: 'list',
    step: `longshore machine delete ${machineId}`,
  });
  expect(growthLines(unlisted).join('\n')).toMatch(/list of provider cloud has failed \d+ times in a row.*no quota/);

  // The listing works, so the request is made again, and its machine is deleted.
  for (const verb of ['create', 'list']) verbWorks(verb);
  const created = async (): Promise<boolean> => {
    const { data } = jsonOf<{ readonly data: readonly Json[] }>(await set.call(replica, '/api/v1/provider'));
    const calls = (data[0]?.['calls'] ?? []) as readonly Json[];
    return calls.some(({ verb, ok }) => verb === 'create' && ok === true);
  };
  await waitFor(created, 'an instance is made', 150_000);
  const answer = await set.call(replica, `/api/v1/gateway/machines/${machineId}`, { method: 'DELETE' });
  expect(jsonOf<Json>(answer)).toMatchObject({ ok: true });
  const unended = await waitFor(
    async () => {
      const shown = await pool();
      return stuckOf(shown).some(({ verb }) => verb === 'terminate') ? shown : undefined;
    },
    'the machine that cannot end is told',
    150_000,
  );
  expect(growthLines(unended)).toContain('next: `longshore provider list`');
  expect(growthLines(unended).join('\n')).toMatch(
    /\(instance i-1\) cannot end, .*terminate of provider cloud has failed \d+ times in a row: .*terminate has no quota/,
  );
}, 600_000);
