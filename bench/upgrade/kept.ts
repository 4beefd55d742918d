// Judges the containers that ran before an upgrade: each must run on through it, and must serve
// under its machine's new agent. Pure; the facts come from the engines and from the handlers' records.
import type { Run } from '../chaos/audit.ts';

/** A running container of a deployment that the load keeps warm, as its machine's engine has it. */
export interface KeptContainer {
  readonly containerId: string;
  readonly dockerId: string;
  /** The engine's time of the start; another one means that the container was started again. */
  readonly startedAt: string;
  /** Index of its machine. */
  readonly machine: number;
  /** Name of its deployment. */
  readonly app: string;
}

/** Containers that ran before and do not run on as they did. */
export function notRunningOn(before: readonly KeptContainer[], after: readonly KeptContainer[]): readonly string[] {
  return before.flatMap((one) => {
    const now = after.find(({ containerId }) => containerId === one.containerId);
    if (now === undefined) return [`not_adopted: ${nameOf(one)} ran before the upgrade, and does not run after it`];
    if (now.dockerId === one.dockerId && now.startedAt === one.startedAt && now.machine === one.machine) return [];
    return [`restarted: ${nameOf(one)} runs as ${now.dockerId} since ${now.startedAt}`];
  });
}

/** Containers that have begun no run of a request with a number above `afterN`. */
export function notServing(
  before: readonly KeptContainer[],
  runs: readonly Run[],
  afterN: number,
): readonly KeptContainer[] {
  const serving = new Set(runs.filter(({ n }) => n > afterN).map(({ containerId }) => containerId));
  return before.filter(({ containerId }) => !serving.has(containerId));
}

/** Containers that were seen on more than one machine: no machine is lost here, so none may move. */
export function onTwoMachines(machines: readonly ReadonlySet<string>[]): readonly string[] {
  const all = machines.flatMap((ids) => [...ids]);
  return [...new Set(all.filter((id, at) => all.indexOf(id) !== at))].map(
    (id) => `on_two_machines: ${id} was seen on more than one machine`,
  );
}

export const nameOf = ({ containerId, dockerId, startedAt, machine, app }: KeptContainer): string =>
  `${containerId} of ${app} on machine ${machine + 1} (${dockerId}, since ${startedAt})`;
