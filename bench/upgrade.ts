/**
 * `npm run upgrade`: a running installation of the newest release, or of the commit that `--from` names, is upgraded to
 * this checkout under load, the scheduler first, then the agents. Every accepted task is audited as after the kill
 * rounds, and so are the machines. Containers that ran before must run on and serve. Exit code 1: a finding.
 * docs/benchmarks.md has the rest.
 */
import { machineFacts, machineText } from './machine.ts';
import { Output } from './output.ts';
import { runProgram } from './program.ts';
import { UPGRADE_USAGE, parseUpgradeOptions } from './upgrade/options.ts';
import type { UpgradeOptions } from './upgrade/options.ts';
import { upgrade } from './upgrade/run.ts';
import type { Workplace } from './workplace.ts';

await runProgram({ name: 'upgrade', usage: UPGRADE_USAGE, parse: parseUpgradeOptions, work: upgradeRun });

async function upgradeRun(options: UpgradeOptions, place: Workplace): Promise<number> {
  const output = new Output(options.jsonPath);
  const facts = machineFacts(await place.engine.version());
  output.say(machineText(facts));
  const { from, stores } = options;
  output.json('run', { startedAt: new Date().toISOString(), machine: facts, from, stores });
  const outcome = await upgrade(options, place, output);
  output.json('outcome', outcome);
  const { accepted, unanswered, runs, repeated, settledMs, kept, containers, counts, ends, findings } = outcome;
  const text = (all: Readonly<Record<string, number>>): string =>
    Object.entries(all)
      .map(([what, count]) => `${count} ${what}`)
      .join(', ');
  output.say(`answers: ${text(counts)}`);
  output.say(`containers: ${containers} were seen, ${kept} of them kept warm through the upgrade; rows: ${text(ends)}`);
  for (const finding of findings) output.say(`FOUND ${finding}`);
  output.say(
    `upgraded ${outcome.from} to this checkout on ${stores} stores: ${accepted} tasks accepted, ${unanswered} requests not answered, ` +
      `${runs} runs (${repeated} repeated); the last task ended ${(settledMs / 1000).toFixed(0)} s after the load. ` +
      `${findings.length} findings. Written to ${options.jsonPath}.`,
  );
  return findings.length > 0 ? 1 : 0;
}
