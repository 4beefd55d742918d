/**
 * `npm run chaos`: a disturbance at random moments under load, round after round, on an installation of its own: kill
 * -9, a frozen scheduler, a store that is away. Then every accepted task is audited. Each has one final state, none is
 * lost, and every result is right. No synchronous task runs twice, and no asynchronous one exceeds its attempts. Exit
 * code 1: the audit found a violation. docs/benchmarks.md describes the load.
 */
import { tallyText } from './chaos/absence.ts';
import { CHAOS_USAGE, parseChaosOptions } from './chaos/options.ts';
import type { ChaosOptions } from './chaos/options.ts';
import { disturb } from './chaos/disturb.ts';
import { machineFacts, machineText } from './machine.ts';
import { Output } from './output.ts';
import { runProgram } from './program.ts';
import type { Workplace } from './workplace.ts';

await runProgram({ name: 'chaos', usage: CHAOS_USAGE, parse: parseChaosOptions, work: chaos });

async function chaos(options: ChaosOptions, place: Workplace): Promise<number> {
  const output = new Output(options.jsonPath);
  const facts = machineFacts(await place.engine.version());
  output.say(machineText(facts));
  const { rounds, stores, kind } = options;
  output.json('run', { startedAt: new Date().toISOString(), machine: facts, rounds, stores, disturbance: kind });
  const outcome = await disturb(options, place, output);
  output.json('outcome', outcome);
  for (const text of outcome.findings) output.say(`FOUND ${text}`);
  const { accepted, unanswered, runs, repeated, settledMs, findings, machine, events, during } = outcome;
  if (machine !== undefined) {
    const ends = Object.entries(machine.ends).map(([what, count]) => `${count} ${what}`);
    output.say(
      `the machine was looked at ${machine.looks} times: ${machine.containers} containers, ${machine.leases} of them with GPUs (${machine.gpus} devices given out); rows: ${ends.join(', ')}`,
    );
  }
  if (events !== undefined)
    output.say(
      `${events.events} events of tasks: a subscriber and a receiver of a webhook had all of them ${(events.reachedMs / 1000).toFixed(0)} s after the last task; ${events.again} were delivered again`,
    );
  if (during !== undefined) output.say(`requests while it was disturbed: ${tallyText(during)}`);
  output.say(
    `${rounds} rounds of ${kind} on ${stores} stores: ${accepted} tasks accepted, ${unanswered} requests not answered, ${runs} runs (${repeated} repeated); ` +
      `the last task ended ${(settledMs / 1000).toFixed(0)} s after the load. ${findings.length} findings. Written to ${options.jsonPath}.`,
  );
  return findings.length > 0 ? 1 : 0;
}
