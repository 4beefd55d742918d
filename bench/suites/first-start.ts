// `first-start`: a scheduler's start on an empty data directory, from spawning it to the first 200 of its health page.
// The baseline is its next start on the same directory. Both are of a checkout that is set up, so that the database
// that a first start copies is prepared (scheduler/stores/store/template.ts).
import { join } from 'node:path';
import { measureOf } from '../measure.ts';
import { startMs } from './start.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const DATABASE = new URL('../../scripts/setup/database.mjs', import.meta.url).href;

export async function firstStart({ place, runRounds, slack }: SuiteContext): Promise<SuiteResult> {
  const { prepareDatabase } = (await import(DATABASE)) as { prepareDatabase: () => Promise<unknown> };
  await prepareDatabase();
  let made = 0;
  const rounds = await runRounds('first-start', async () => {
    const env = { ...place.env, LONGSHORE_DATA_DIR: join(place.directory, `first${(made += 1)}`) };
    const first = await startMs(place, env);
    return { product: first, baseline: await startMs(place, env) };
  });
  return { measures: [measureOf('first-start', 'p50', 'ms', rounds, slack)], rounds };
}
