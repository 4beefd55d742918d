// The steps of a story, with their frequencies: mostly progress, sometimes faults.
import fc from 'fast-check';
import * as callers from './callers.ts';
import * as machines from './machines.ts';
import * as records from './records.ts';
import type { World } from './world.ts';
import { pick, wait } from './world.ts';

type Play = (world: World, at: number, choice: number) => void;

const OUTCOMES = ['ok', 'ok', 'ok', 'error'] as const;
/** Waits: past a hold, past the silence of an offer, past a presence, past a lost machine. */
const WAITS_MS = [120, 120, 300, 1_100, 1_100, 6_000, 11_000, 11_000, 31_000, 95_000];

const STEPS: Readonly<Record<string, { readonly weight: number; readonly play: Play }>> = {
  call: { weight: 9, play: (world, at, choice) => callers.call(world, at, choice % 4 === 0) },
  hear: { weight: 16, play: (world, at) => machines.hear(world, at) },
  lose: { weight: 3, play: (world, at) => machines.lose(world, at) },
  announce: { weight: 6, play: (world, at) => machines.announce(world, at) },
  deliver: { weight: 16, play: (world, at, choice) => machines.deliver(world, at, choice) },
  finish: { weight: 8, play: (world, at, choice) => machines.finish(world, at, pick(OUTCOMES, choice) ?? 'ok') },
  load: { weight: 3, play: (world, at, choice) => machines.loadInput(world, at, choice) },
  tick: { weight: 10, play: (world, at) => machines.tick(world, at) },
  flush: { weight: 4, play: (world, at) => records.flush(world, at) },
  land: { weight: 5, play: (world, at) => records.land(world, at) },
  spill: { weight: 1, play: (world, at, choice) => records.spill(world, at, choice % 2 === 0) },
  drainSpill: { weight: 1, play: (world) => records.drainSpill(world) },
  landLate: { weight: 1, play: (world, at, choice) => records.landLate(world, at, choice % 3 === 0) },
  tellOpen: { weight: 2, play: (world, at) => records.tellOpen(world, at) },
  sweep: { weight: 1, play: (world) => records.sweep(world) },
  loseMachines: { weight: 1, play: (world) => machines.loseMachines(world) },
  cancel: { weight: 1, play: (world, at, choice) => callers.cancel(world, at, choice % 2 === 0) },
  dial: { weight: 5, play: (world, at, choice) => machines.dial(world, at, choice) },
  cut: { weight: 2, play: (world, at, choice) => machines.cut(world, at, choice % 2 === 0) },
  exit: { weight: 1, play: (world, at) => machines.exit(world, at) },
  killAgent: { weight: 1, play: (world, at) => machines.killAgent(world, at) },
  reboot: { weight: 1, play: (world, at) => machines.reboot(world, at) },
  kill: { weight: 1, play: (world, at, choice) => machines.kill(world, at, choice % 2 === 0) },
  freeze: { weight: 1, play: (world, at) => machines.freeze(world, at) },
  thaw: { weight: 2, play: (world, at) => machines.thaw(world, at) },
  wait: { weight: 4, play: (world, _at, choice) => wait(world, pick(WAITS_MS, choice) ?? 0) },
};

export interface Step {
  readonly name: string;
  readonly at: number;
  readonly choice: number;
}

/** Sequences drawn as a whole, so that their consequences occur often enough. */
const ERRANDS: readonly (readonly string[])[] = [
  ['dial', 'announce', 'hear', 'hear', 'call', 'hear', 'deliver'],
  ['call', 'deliver', 'finish', 'deliver', 'flush', 'land', 'deliver'],
  ['call', 'call', 'call', 'announce', 'hear', 'hear', 'hear', 'deliver'],
  ['deliver', 'finish', 'deliver', 'hear', 'hear', 'flush', 'land', 'deliver'],
  ['call', 'dial', 'tick', 'hear', 'hear', 'hear'],
  ['finish', 'deliver', 'flush', 'spill', 'deliver', 'dial', 'tick', 'hear', 'hear'],
  ['announce', 'hear', 'call', 'wait', 'tick', 'hear', 'hear', 'hear'],
  ['call', 'hear', 'kill', 'dial', 'wait', 'tick', 'deliver'],
  ['call', 'deliver', 'dial', 'deliver', 'finish', 'deliver', 'flush', 'spill', 'deliver', 'dial', 'deliver', 'tick'],
  ['deliver', 'finish', 'deliver', 'flush', 'kill', 'landLate', 'dial', 'deliver'],
  ['freeze', 'dial', 'wait', 'sweep', 'thaw', 'hear', 'deliver', 'tick'],
  ['wait', 'tick', 'tick', 'tick', 'hear', 'hear'],
];

const NAMES = Object.entries(STEPS).flatMap(([name, { weight }]) => Array<string>(weight).fill(name));
const aNumber = (max: number): fc.Arbitrary<number> => fc.nat({ max });

/** @param longest - steps and errands together */
export const aStory = (longest: number): fc.Arbitrary<readonly Step[]> =>
  fc
    .array(
      fc.oneof(
        {
          weight: 1,
          arbitrary: fc
            .record({
              names: fc.constantFrom(...ERRANDS),
              numbers: fc.array(aNumber(239), { minLength: 24, maxLength: 24 }),
            })
            .map(({ names, numbers }) =>
              names.map((name, step) => ({ name, at: numbers[step] ?? 0, choice: numbers[step + 12] ?? 0 })),
            ),
        },
        {
          weight: 2,
          arbitrary: fc
            .record({ name: fc.constantFrom(...NAMES), at: aNumber(239), choice: aNumber(239) })
            .map((step) => [step]),
        },
      ),
      { minLength: 1, maxLength: longest, size: 'max' },
    )
    .map((parts) => parts.flat());

export const play = (world: World, step: Step): void => STEPS[step.name]?.play(world, step.at, step.choice);
