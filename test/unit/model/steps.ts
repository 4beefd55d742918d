// The steps of a story, with their frequencies: mostly progress, sometimes faults.
import fc from 'fast-check';
import type { World } from './world.ts';
import { pick, tell } from './world.ts';
import * as containers from './container-steps.ts';
import * as machines from './machine-steps.ts';
import * as tasks from './task-steps.ts';

type Play = (world: World, at: number, choice: number) => void;

const STEPS: Readonly<Record<string, { readonly weight: number; readonly play: Play }>> = {
  enqueue: { weight: 6, play: (world, at) => tasks.enqueue(world, at) },
  scale: { weight: 6, play: (world, at) => containers.scaleQueue(world, at, true) },
  scaleBlind: { weight: 1, play: (world, at) => containers.scaleQueue(world, at, false) },
  decidePlace: { weight: 6, play: (world, at) => containers.decidePlace(world, at) },
  write: { weight: 7, play: (world, at) => containers.write(world, at) },
  sendDesired: { weight: 7, play: (world, at) => containers.sendDesired(world, at) },
  deliver: { weight: 26, play: (world, at) => machines.deliver(world, at, false) },
  deliverTwice: { weight: 3, play: (world, at) => machines.deliver(world, at, true) },
  act: { weight: 14, play: (world, at, choice) => containers.act(world, at, choice) },
  ready: { weight: 6, play: (world, at) => containers.becomeReady(world, at) },
  dispatch: { weight: 9, play: (world, at, choice) => tasks.dispatch(world, at, (choice % 100) / 100) },
  finish: { weight: 7, play: (world, at, choice) => tasks.finish(world, at, pick(OUTCOMES, choice) ?? 'ok') },
  report: { weight: 2, play: (world, at) => machines.sendReport(world, at) },
  cancel: { weight: 2, play: (world, at) => tasks.cancel(world, at) },
  crash: { weight: 2, play: (world, at, choice) => containers.crash(world, at, pick([0, 1, 137], choice) ?? 0) },
  stop: { weight: 1, play: (world, at, choice) => containers.stopContainer(world, at, choice % 2 === 0) },
  stopDrained: { weight: 2, play: (world) => containers.stopDrained(world) },
  takeBack: { weight: 1, play: (world, at) => containers.takeBack(world, at) },
  cut: { weight: 2, play: (world, at) => machines.cut(world, at) },
  connect: { weight: 5, play: (world, at) => machines.connect(world, at) },
  look: { weight: 2, play: (world) => machines.check(world) },
  tend: { weight: 2, play: (world) => tasks.tend(world) },
  wait: { weight: 3, play: (world, _at, choice) => wait(world, choice) },
  setIntent: {
    weight: 1,
    play: (world, at, choice) => machines.setIntent(world, at, pick(INTENTS, choice) ?? 'active'),
  },
  setCondition: { weight: 1, play: (world, at) => machines.setCondition(world, at) },
  killAgent: { weight: 1, play: (world, at) => machines.killAgent(world, at) },
  reboot: { weight: 1, play: (world, at) => machines.reboot(world, at) },
  killScheduler: { weight: 1, play: (world) => machines.killScheduler(world) },
  changeLeader: { weight: 1, play: (world) => machines.changeLeader(world) },
};
const OUTCOMES = ['ok', 'ok', 'ok', 'error', 'retry', 'retry'] as const;
const INTENTS = ['active', 'active', 'cordoned', 'draining'] as const;
/** Waits: a moment, past a keep-warm, past a lost machine, past a lock, past a day. */
const WAITS_MS = [1_000, 11_000, 95_000, 130_000, 25 * 3600_000];

function wait(world: World, choice: number): void {
  world.nowMs += pick(WAITS_MS, choice) ?? 0;
  tell(world, 'waited', `${pick(WAITS_MS, choice)} ms`);
}

export interface Step {
  readonly name: string;
  readonly at: number;
  readonly choice: number;
}

const NAMES = Object.entries(STEPS).flatMap(([name, { weight }]) => Array<string>(weight).fill(name));

/** Sequences without a fault, drawn as a whole: single steps alone would seldom get a container to serve. */
const ERRANDS: readonly (readonly string[])[] = [
  ['connect', 'enqueue', 'scale', 'decidePlace', 'write', 'sendDesired'],
  ['sendDesired', 'deliver', 'act', 'deliver', 'deliver', 'act', 'deliver', 'ready', 'deliver', 'deliver'],
  ['enqueue', 'dispatch', 'deliver', 'finish', 'deliver', 'deliver'],
  ['dispatch', 'deliver', 'deliver', 'finish', 'deliver'],
];

/** Sequences of faults, drawn as a whole so that their consequences occur often enough. */
const MISHAPS: readonly (readonly string[])[] = [
  ['dispatch', 'deliver', 'cancel', 'finish', 'deliver', 'deliver', 'deliver'],
  ['connect', 'enqueue', 'dispatch', 'deliver', 'deliver', 'finish', 'cancel', 'deliver', 'deliver', 'deliver'],
  ['dispatch', 'deliver', 'deliver', 'killScheduler', 'connect', 'connect', 'deliver', 'finish', 'deliver'],
  ['dispatch', 'deliver', 'deliver', 'stop', 'sendDesired', 'deliver', 'act', 'deliver', 'deliver'],
  ['enqueue', 'enqueue', 'dispatch', 'deliver', 'killScheduler', 'connect', 'deliver', 'deliver', 'dispatch'],
  ['dispatch', 'deliver', 'cut', 'wait', 'look', 'finish', 'connect', 'deliver'],
  ['dispatch', 'deliver', 'reboot', 'connect', 'deliver', 'act', 'deliver'],
  ['decidePlace', 'decidePlace', 'changeLeader', 'write', 'decidePlace', 'write', 'write'],
];

const aNumber = (max: number): fc.Arbitrary<number> => fc.nat({ max });
const aStep = (name: fc.Arbitrary<string>): fc.Arbitrary<Step> =>
  fc.record({ name, at: aNumber(23), choice: aNumber(99) });
const inARow = (rows: readonly (readonly string[])[]): fc.Arbitrary<readonly Step[]> =>
  fc
    .record({
      names: fc.constantFrom(...rows),
      at: aNumber(11),
      choices: fc.array(aNumber(99), { minLength: 10, maxLength: 10 }),
    })
    .map(({ names, at, choices }) => names.map((name, step) => ({ name, at, choice: choices[step] ?? 0 })));

/** @param longest - steps and errands together */
export const aStory = (longest: number): fc.Arbitrary<readonly Step[]> =>
  fc
    .array(
      fc.oneof(
        { weight: 6, arbitrary: inARow(ERRANDS) },
        { weight: 1, arbitrary: inARow(MISHAPS) },
        { weight: 5, arbitrary: aStep(fc.constantFrom(...NAMES)).map((step) => [step]) },
      ),
      { minLength: 1, maxLength: longest, size: 'max' },
    )
    .map((parts) => parts.flat());

export const play = (world: World, step: Step): void => STEPS[step.name]?.play(world, step.at, step.choice);
