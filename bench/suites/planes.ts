// The two control planes that `reaction` and `growth` compare: one with a single
// deployment beside the measured ones, one with a thousand that nobody calls.
import { ControlPlane } from '../control-plane.ts';
import type { PrivatePostgres } from '../../test/helpers/postgres.ts';
import type { Release } from '../release.ts';
import type { SimulatedFleet } from '../simulated/fleet.ts';
import type { Workplace } from '../workplace.ts';

export interface Plane {
  readonly plane: ControlPlane;
  readonly fleet: SimulatedFleet;
}

export interface Planes {
  readonly alone: Plane;
  readonly crowded: Plane;
  /** Deployments without calls, in the crowded plane. */
  readonly idle: number;
}

const FULL_IDLE = 1000;
const QUICK_IDLE = 100;
const MACHINES = 4;

export async function startPlanes(place: Workplace, postgres: PrivatePostgres, isQuick: boolean): Promise<Planes> {
  const idle = idleOf(isQuick);
  const plane = (name: string, apps: number): Promise<Plane> => startPlane(place, postgres, name, apps);
  return { alone: await plane('alone', 1), crowded: await plane('crowded', idle), idle };
}

/** Number of deployments without calls. */
export const idleOf = (isQuick: boolean): number => (isQuick ? QUICK_IDLE : FULL_IDLE);

/** @param release - the scheduler is of this release, instead of the sources */
export async function startPlane(
  place: Workplace,
  postgres: PrivatePostgres,
  name: string,
  apps: number,
  release?: Release,
): Promise<Plane> {
  const plane = await ControlPlane.start(place, postgres, name, {}, release);
  await plane.deploy(apps, 'idle');
  return { plane, fleet: await plane.machines(MACHINES) };
}
