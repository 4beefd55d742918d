/**
 * `npm run soak`: hours of ordinary use in minutes. The soak starts an installation of its own, lets a mixed load work
 * on it, and judges every answer. Every accepted task is followed to its one final state. At rest, the installation's
 * resources are compared before and after. Exit code 1: an answer was not as intended, or something grew that should
 * not. docs/benchmarks.md describes the load.
 */
import { cpSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import { machineFacts, machineText } from './machine.ts';
import { Output } from './output.ts';
import { startProduct } from './product.ts';
import type { Product } from './product.ts';
import { runProgram } from './program.ts';
import { untilStored } from './records.ts';
import { actorsOf, perform } from './soak/actors.ts';
import type { Stage } from './soak/actors.ts';
import { uploadApp } from './soak/apps.ts';
import { Caller } from './soak/caller.ts';
import { growthRows } from './soak/growth.ts';
import { Ledger } from './soak/ledger.ts';
import { SOAK_USAGE, parseSoakOptions } from './soak/options.ts';
import type { SoakOptions } from './soak/options.ts';
import { memoryNow, takeSample } from './soak/samples.ts';
import { follow, settle } from './soak/settle.ts';
import { alignColumns } from './table.ts';
import type { Workplace } from './workplace.ts';

/** Requests under way at a time, those of all actors together. */
const MOST_REQUESTS = 16;
/** Longer than every keep-warm of the load. */
const IDLE_MS = 60_000;
const POLL_MS = 200;
const TREND_EVERY_MS = 10_000;

await runProgram({
  name: 'soak',
  usage: SOAK_USAGE,
  parse: parseSoakOptions,
  work: (options, place) => soak(options, place, new Output(options.jsonPath)),
});

async function soak(options: SoakOptions, place: Workplace, output: Output): Promise<number> {
  const facts = machineFacts(await place.engine.version());
  output.say(machineText(facts));
  const { minutes, warmUpMinutes } = options;
  output.json('run', { startedAt: new Date().toISOString(), machine: facts, minutes, warmUpMinutes });
  const product = await startProduct(place);
  const caller = new Caller(product.client.context, MOST_REQUESTS);
  place.later(() => caller.close());
  const ledger = new Ledger();
  const stage: Stage = { caller, ledger, engine: place.engine, objectId: await uploadApp(product.client) };
  const actors = await actorsOf(stage);

  const load = async (forMinutes: number): Promise<void> => {
    const ends = AbortSignal.any([AbortSignal.timeout(forMinutes * 60_000), place.signal]);
    const followed = new AbortController();
    const following = follow(caller, ledger, followed.signal);
    const watching = watchMemory(product, output, ends);
    await Promise.all(actors.map((actor) => perform(actor, ledger, ends)));
    followed.abort();
    await Promise.all([following, watching]);
    place.signal.throwIfAborted();
    await settle(caller, ledger);
    for (const actor of actors) await actor.after?.();
    await untilIdle(product, place);
  };

  output.say(`warm-up: ${warmUpMinutes} minutes`);
  await load(warmUpMinutes);
  const before = await takeSample(product, place.engine);
  output.json('sample', { when: 'before', ...before });
  output.say(`load: ${minutes} minutes; ${ledger.settled.size} tasks so far, ${ledger.failed} failures`);
  await load(minutes);
  const after = await takeSample(product, place.engine);
  output.json('sample', { when: 'after', ...after });

  const rows = growthRows(before, after);
  for (const row of rows) output.json('growth', row);
  const counts = [...ledger.counts].toSorted(([a], [b]) => a.localeCompare(b));
  output.json('counts', { counts: Object.fromEntries(counts), tasks: ledger.settled.size, failures: ledger.failed });
  for (const text of ledger.failures) output.json('failure', { text });

  output.say(`\n${alignColumns(counts.map(([what, count]) => [what, String(count)]))}`);
  output.say(
    `\n${ledger.settled.size} tasks accepted, each with one final state unless a failure below says otherwise.\n`,
  );
  const verdict = (isWithin: boolean | undefined): string => (isWithin === undefined ? '' : isWithin ? 'ok' : 'BEYOND');
  const cells = rows.map((row) => [row.what, row.before, row.after, row.growth, row.bound, verdict(row.isWithin)]);
  output.say(alignColumns([['at rest', 'after warm-up', 'at the end', 'growth', 'bound', ''], ...cells]));
  output.say('');
  for (const text of ledger.failures) output.say(`FAILED ${text}`);
  const beyond = rows.filter((row) => row.isWithin === false).length;
  output.say(`${ledger.failed} failures, ${beyond} beyond their bounds. Written to ${options.jsonPath}.`);
  if (options.keepLogsIn !== undefined) keepLogs(place.directory, options.keepLogsIn);
  return ledger.failed > 0 || beyond > 0 ? 1 : 0;
}

/** Nothing runs and nothing is on its way to the database. @throws Error when a container stays */
async function untilIdle(product: Product, place: Workplace): Promise<void> {
  const deadlineMs = performance.now() + IDLE_MS;
  while ((await place.engine.countOwn()).containers > 0) {
    // The sample shows what is left.
    if (performance.now() > deadlineMs) break;
    await sleep(POLL_MS);
  }
  await untilStored(product.dataDir);
}

async function watchMemory(product: Product, output: Output, signal: AbortSignal): Promise<void> {
  while (await sleep(TREND_EVERY_MS, signal)) output.json('memory', { atMs: Date.now(), ...memoryNow(product) });
}

function keepLogs(from: string, to: string): void {
  mkdirSync(to, { recursive: true });
  for (const name of readdirSync(from)) if (name.endsWith('.log')) cpSync(join(from, name), join(to, name));
}
