import type { MachineId } from '#shared/domain/ids.ts';
import { BoundedMap } from '../../workspaces/deployments/bounded-map.ts';
import type { Wanted } from '../plan/fit-class.ts';

type Imaged = Pick<Wanted, 'image' | 'basePython'>;

const BASE_MS = 60_000;
const CAP_MS = 30 * 60_000;
const MOST_IMAGES = 256;
const MOST_MACHINES = 256;
const NOWHERE: ReadonlySet<MachineId> = new Set();

interface Failed {
  readonly times: number;
  /** Monotonic milliseconds until which other machines are preferred. */
  readonly untilMs: number;
}

/**
 * Machines that recently could not get an image: others are tried before them, for longer each
 * time. Only the leader's memory has this; a new leader learns it from one failing start.
 * Where no other machine has room they are tried all the same; the breaker limits how often.
 */
export class FailedImages {
  readonly #images = new BoundedMap<string, BoundedMap<MachineId, Failed>>(MOST_IMAGES);

  failed(wanted: Imaged, machineId: MachineId, nowMs: number): void {
    const image = keyOf(wanted);
    let machines = this.#images.get(image);
    if (machines === undefined) this.#images.set(image, (machines = new BoundedMap(MOST_MACHINES)));
    const times = (machines.get(machineId)?.times ?? 0) + 1;
    machines.set(machineId, { times, untilMs: nowMs + Math.min(BASE_MS * 2 ** Math.min(times - 1, 20), CAP_MS) });
  }

  /** Forgets the failures of a machine on which a container of that image is ready. */
  worked(wanted: Imaged, machineId: MachineId): void {
    this.#images.get(keyOf(wanted))?.delete(machineId);
  }

  /** Machines on which the container is better not placed now. */
  machinesOf(wanted: Imaged, nowMs: number): ReadonlySet<MachineId> {
    const machines = this.#images.get(keyOf(wanted));
    if (machines === undefined) return NOWHERE;
    const failing = new Set<MachineId>();
    for (const [machineId, { untilMs }] of machines) if (untilMs > nowMs) failing.add(machineId);
    return failing;
  }
}

/** Key of the container's image; without one, of the base image of its Python version. */
const keyOf = ({ image, basePython }: Imaged): string => (image === '' ? `python ${basePython}` : image);
