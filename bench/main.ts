/**
 * `npm run bench`: measures Longshore beside the parts that it is built on, on this machine, in one run. The run starts
 * everything it needs (its own Redis, scheduler, agent, containers), and removes all of it again. Everything is in a
 * temporary directory, on free ports of 127.0.0.1. Figures of different machines do not compare; the ratios do.
 * docs/benchmarks.md describes each benchmark.
 */
import { join } from 'node:path';
import { benchAgainst } from './against/main.ts';
import { startQueueBaseline } from './baselines/queue.ts';
import { cpuText } from './cpu.ts';
import { QUICK_SLACK } from './goals.ts';
import { machineFacts, machineText } from './machine.ts';
import type { Measure } from './measure.ts';
import { USAGE, parseOptions } from './options.ts';
import type { BenchOptions, SuiteName } from './options.ts';
import { Output } from './output.ts';
import { startPostgres } from './control-plane.ts';
import { startProduct } from './product.ts';
import { runProgram } from './program.ts';
import { writeBenchRelease } from './release.ts';
import { runRounds } from './rounds.ts';
import { agent, agentGpus } from './suites/agent.ts';
import { bodies } from './suites/bodies.ts';
import { builds } from './suites/builds.ts';
import { cold } from './suites/cold.ts';
import { consoleViews } from './suites/console.ts';
import { crossing } from './suites/crossing.ts';
import { die } from './suites/die.ts';
import { events } from './suites/events.ts';
import { firstStart } from './suites/first-start.ts';
import { growth } from './suites/growth.ts';
import { grpc } from './suites/grpc.ts';
import { throughput, warm } from './suites/invoke.ts';
import { inference } from './suites/inference.ts';
import { list } from './suites/list.ts';
import { logs } from './suites/logs.ts';
import { loss } from './suites/loss.ts';
import { fair } from './suites/fair.ts';
import { flow } from './suites/flow.ts';
import { placement } from './suites/placement.ts';
import { startPlanes } from './suites/planes.ts';
import { provisioning } from './suites/provisioning.ts';
import { reaction } from './suites/reaction.ts';
import { pull } from './suites/pull.ts';
import { reconcile } from './suites/reconcile.ts';
import { records } from './suites/records.ts';
import { renewal } from './suites/renewal.ts';
import { rest } from './suites/rest.ts';
import { restart } from './suites/restart.ts';
import { saturation } from './suites/saturation.ts';
import { scale } from './suites/scale.ts';
import { sandboxes } from './suites/sandboxes.ts';
import { serve } from './suites/serve.ts';
import { start } from './suites/start.ts';
import { streams } from './suites/streams.ts';
import { volumes } from './suites/volumes.ts';
import { weights } from './suites/weights.ts';
import type { Check, SuiteContext, SuiteResult } from './suites/suite.ts';
import { resultTable } from './table.ts';
import type { Workplace } from './workplace.ts';

const RUN: Readonly<Record<SuiteName, (context: SuiteContext) => Promise<SuiteResult>>> = {
  warm,
  throughput,
  cold,
  start,
  'first-start': firstStart,
  reaction,
  growth,
  rest,
  placement,
  fair,
  flow,
  provisioning,
  records,
  crossing,
  saturation,
  streams,
  bodies,
  volumes,
  builds,
  weights,
  sandboxes,
  serve,
  list,
  grpc,
  inference,
  events,
  logs,
  console: consoleViews,
  agent,
  'agent-gpus': agentGpus,
  reconcile,
  scale,
  pull,
  die,
  loss,
  restart,
  renewal,
};
/** Calls waiting on one queue at a time: as many as the busiest load has connections. */
const WORKER_CONCURRENCY = 64;
/** The program that the agent's idle cost is compared with. */
const FLOOR = 'bench/baselines/agent-modules.ts';

await runProgram({
  name: 'bench',
  usage: USAGE,
  parse: parseOptions,
  work: (options, place) => {
    const output = new Output(options.jsonPath);
    const { against } = options;
    return against === undefined ? bench(options, place, output) : benchAgainst({ ...options, against }, place, output);
  },
});

async function bench(options: BenchOptions, place: Workplace, output: Output): Promise<number> {
  const facts = machineFacts(await place.engine.version());
  output.say(machineText(facts));
  const { suites, isQuick, rounds, maxOutside } = options;
  output.json('run', { startedAt: new Date().toISOString(), machine: facts, suites, isQuick, rounds, maxOutside });

  const slack = isQuick ? QUICK_SLACK : 1;
  const postgres = once(() => startPostgres(place));
  const release = once(() => writeBenchRelease(join(place.directory, 'r'), { floor: FLOOR }));
  const context: SuiteContext = {
    place,
    isQuick,
    say: (line) => output.say(line),
    slack,
    profileDir: options.profileDir,
    release,
    product: once(async () => startProduct(place, { profileDir: options.profileDir, release: await release() })),
    queueBaseline: once(() => startQueueBaseline(place, WORKER_CONCURRENCY)),
    postgres,
    planes: once(async () => startPlanes(place, await postgres(), isQuick)),
    runRounds: (suite, measure) =>
      runRounds(measure, {
        rounds,
        maxOutside,
        watch: (work) => place.watch(work),
        onRound: (round) => output.round(suite, round),
        signal: place.signal,
      }),
  };
  const measures: Measure[] = [];
  const unquiet: SuiteName[] = [];
  const cpu: string[] = [];
  const details: string[] = [];
  const outcomes: Check[] = [];
  const checks: ((dataDir: string) => Promise<Check>)[] = [];
  for (const suite of suites) {
    output.say(`${suite}:`);
    // Schedulers that idle beside the next suites would take its processor time, and connections of the database.
    const own = place.part();
    const result = await RUN[suite]({ ...context, place: own });
    for (const problem of await own.close()) output.say(`${suite}: not cleaned up: ${problem}`);
    const found = result.measures.filter((measure) => measure !== undefined);
    if (found.length === 0) unquiet.push(suite);
    measures.push(...found);
    for (const side of ['baseline', 'product'] as const) {
      const text = cpuText(result.rounds, side);
      if (text !== '')
        cpu.push(`${suite}: processor time per call of ${side === 'product' ? 'longshore' : 'the baseline'}: ${text}`);
    }
    outcomes.push(...(result.checks ?? []));
    if (result.details !== undefined) {
      output.json('details', { suite, ...result.details.figures });
      details.push(`${suite}:\n${result.details.text}`);
    }
    if (result.checkStopped !== undefined) checks.push(result.checkStopped);
  }
  if (checks.length > 0) {
    const product = await context.product();
    await product.stop();
    for (const check of checks) outcomes.push(await check(product.dataDir));
  }

  for (const measure of measures) output.json('measure', measure);
  for (const outcome of outcomes) output.json('check', outcome);
  output.say('');
  output.say(resultTable(measures));
  for (const line of [...cpu, ...details]) output.say(line);
  for (const { suite, name, isRight, text } of outcomes)
    output.say(`${suite}: ${name}: ${isRight ? 'yes' : 'NO'} (${text})`);
  for (const suite of unquiet)
    output.say(
      `${suite}: no round counts, others used more than ${maxOutside * 100} % of the machine in each (--max-outside)`,
    );
  if (isQuick) output.say(`A short run: goals are judged ${QUICK_SLACK} times looser.`);
  output.say(`Written to ${options.jsonPath}.`);

  if (outcomes.some((outcome) => !outcome.isRight)) return 1;
  if (!options.isGate) return 0;
  return unquiet.length > 0 || measures.some((measure) => measure.verdict === 'missed') ? 1 : 0;
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => (made ??= make());
}
