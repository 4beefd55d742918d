// `placement` (G7): containers per second from being wanted to the start order on an agent's stream, recorded in the
// database. Measured on 5,000 simulated machines, on 500, and for the decision alone.
import { sleep } from '#shared/backoff.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import type { PlacementMachine, PlacementRequest } from '#scheduler/control/plan/filter.ts';
import { Candidates } from '#scheduler/control/plan/candidates.ts';
import { ControlPlane, until } from '../control-plane.ts';
import type { IdleApp } from '../control-plane.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import type { Release } from '../release.ts';
import { inTurn } from '../rounds.ts';
import { median } from '../stats.ts';
import type { PrivatePostgres } from '../../test/helpers/postgres.ts';
import type { Workplace } from '../workplace.ts';
import type { Plane } from './planes.ts';
import { queuedFigures } from './queued.ts';
import type { QueuedSizes } from './queued.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const FULL = {
  machines: 5000,
  fewer: 500,
  containers: 1000,
  waiting: 100_000,
  fewerWaiting: 10_000,
  classes: 2000,
  workspaces: 1000,
} as const;
const QUICK = {
  machines: 1000,
  fewer: 500,
  containers: 200,
  waiting: 10_000,
  fewerWaiting: 1000,
  classes: 200,
  workspaces: 100,
} as const;
const PLACED_MS = 180_000;
/** Time until the scheduler hears of containers that the machines have forgotten. */
const SETTLE_MS = 500;
/** The first half warms the code up: decisions alone are few enough to be interpreted else. */
const DECISIONS = 4000;
/** Decisions that are timed together, because a single one is too short. */
const AT_ONCE = 10;
const MIB = 1024 ** 2;
const SETTINGS = { LONGSHORE_MAX_CONTAINERS: '100000' };

export async function placement(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack, isQuick } = context;
  const { machines, fewer } = sizesOf(isQuick);
  const postgres = await context.postgres();
  const start = (name: string, count: number): Promise<PlacementRate> =>
    startPlacement({ place, postgres, name, machines: count, isQuick });
  const { waiting, fewerWaiting, classes, workspaces } = sizesOf(isQuick);
  // Before there are machines: a fleet that is simulated in a blocked process answers no ping, and counts as lost.
  const queued = await context.runRounds(
    'placement',
    inTurn(
      () => queuedDecision({ machines: fewer, waiting: fewerWaiting, classes, workspaces: workspaces / 10 }),
      () => queuedDecision({ machines, waiting, classes, workspaces }),
    ),
  );
  const few: Side = { rate: await start('fewer', fewer), world: worldOf(fewer) };
  const many: Side = { rate: await start('machines', machines), world: worldOf(machines) };
  const measured = async ({ rate, world }: Side): Promise<Figures> => {
    const us = decisionUs(world);
    return { rate: await rate(), decision: us, 'decisions alone': 1e6 / us };
  };
  const rounds = await context.runRounds(
    'placement',
    inTurn(
      () => measured(few),
      () => measured(many),
    ),
  );
  return {
    measures: [
      measureOf('placement', 'rate', '/s', rounds, slack),
      measureOf('placement', 'decision', 'us', rounds, slack),
      measureOf('placement', 'decisions alone', '/s', rounds, slack),
      measureOf('placement', 'queued decision', 'us', queued, slack),
      measureOf('placement', 'queued block', 'ms', queued, slack),
    ],
    rounds: [...queued, ...rounds],
  };
}

function queuedDecision(sizes: QueuedSizes): Promise<Figures> {
  const { decisionUs, blockMs } = queuedFigures(sizes);
  return Promise.resolve({ 'queued decision': decisionUs, 'queued block': blockMs });
}

/** A side of the comparison: few machines, or many. */
interface Side {
  readonly rate: PlacementRate;
  readonly world: World;
}

/** Numbers of machines and containers. */
export const sizesOf = (isQuick: boolean): typeof FULL | typeof QUICK => (isQuick ? QUICK : FULL);

/** Measures how many containers are placed in a second. */
export type PlacementRate = () => Promise<number>;

/** Starts a control plane with that number of machines, and measures once, because the first placements are slower. */
export async function startPlacement(options: {
  readonly place: Workplace;
  readonly postgres: PrivatePostgres;
  readonly name: string;
  readonly machines: number;
  readonly isQuick: boolean;
  /** Release of the scheduler, instead of the sources. */
  readonly release?: Release;
}): Promise<PlacementRate> {
  const { place, postgres, name, machines, isQuick, release } = options;
  const plane = await ControlPlane.start(place, postgres, name, SETTINGS, release);
  const fleet = await plane.machines(machines);
  const [app] = await plane.deploy(1, 'wide');
  if (app === undefined) throw new Error('nothing was deployed');
  const { containers } = sizesOf(isQuick);
  const rate = (): Promise<number> => placedPerSecond(place, { plane, fleet }, app, containers);
  await rate();
  return rate;
}

/** Scales from nothing to `count` containers and back. */
async function placedPerSecond(
  { signal }: Workplace,
  { plane, fleet }: Plane,
  app: IdleApp,
  containers: number,
): Promise<number> {
  signal.throwIfAborted();
  const placed = new Set<string>();
  let lastMs = 0;
  fleet.listen((start) => {
    placed.add(start.containerId);
    lastMs = start.atMs;
  });
  const startedMs = performance.now();
  await plane.scale(app, containers);
  await until(`${containers} start orders`, () => placed.size >= containers, PLACED_MS, signal);
  fleet.listen(undefined);
  await plane.scale(app, 0);
  await until('every container is gone', () => fleet.containers === 0, PLACED_MS, signal);
  await sleep(SETTLE_MS);
  return containers / ((lastMs - startedMs) / 1000);
}

interface World {
  readonly machines: readonly PlacementMachine[];
  readonly request: PlacementRequest;
}

/** Machines of which every second one is in use, to different degrees. */
function worldOf(count: number): World {
  const machines = Array.from({ length: count }, (_, n): PlacementMachine => ({
    machineId: `machine-${n}` as MachineId,
    poolName: 'default',
    poolOwner: null,
    requiresPoolSelector: false,
    poolPriority: 0,
    cpuWorkAllowed: true,
    isPresent: true,
    ready: n % 50 !== 0,
    intentActive: n % 70 !== 0,
    blockedBy: [],
    arch: 'x86_64',
    gpuDriver: '',
    basePythons: null,
    freeCpuMillicores: 1000 + ((n * 7919) % 15_000),
    freeMemoryBytes: (1024 + ((n * 104_729) % 60_000)) * MIB,
    totalCpuMillicores: 16_000,
    totalMemoryBytes: 64_000 * MIB,
    freeDiskBytes: 2 ** 40,
    gpus: [],
    volumeDrivers: new Set(['local'] as const),
    registry: true,
    caches: new Set(),
    images: new Set(n % 3 === 0 ? ['image:1'] : []),
  }));
  const request: PlacementRequest = {
    workspaceId: 'w',
    poolName: '',
    cpuMillicores: 500,
    memoryBytes: 512 * MIB,
    diskBytes: 512 * MIB,
    gpu: [],
    gpuCount: 0,
    minCuda: '',
    basePython: '',
    image: 'image:1',
    imageOnlyOn: null,
    imageInRegistry: false,
    arch: '',
    volumeHomes: new Set(),
    volumeDrivers: [],
    caches: [],
    avoid: new Set(),
    overQuota: false,
    fullMarkets: new Set(),
    siblings: new Map([['machine-3' as MachineId, 2]]),
    seed: 'seed',
  };
  return { machines, request };
}

/** Duration of one decision, in microseconds. */
function decisionUs({ machines, request }: World): number {
  const candidates = new Candidates(machines);
  const took: number[] = [];
  for (let batch = 0; batch < DECISIONS / AT_ONCE; batch += 1) {
    const startedMs = performance.now();
    for (let n = 0; n < AT_ONCE; n += 1) {
      const placed = candidates.find({ ...request, seed: `${batch}-${n}` });
      const machine = placed && candidates.get(placed.machineId);
      if (machine === undefined) throw new Error('no machine was found among so many');
      // The placement's share is taken and then given back, so that every round decides about the same machines.
      candidates.set({ ...machine, freeCpuMillicores: machine.freeCpuMillicores - request.cpuMillicores });
      candidates.set(machine);
    }
    took.push(((performance.now() - startedMs) / AT_ONCE) * 1000);
  }
  return median(took.slice(took.length / 2));
}
