// Whose build begins next on this machine. Pure.

export interface WaitingBuild {
  readonly id: string;
  readonly workspaceId: string;
}

export interface Turns {
  /** In the order of their arrival. */
  readonly waiting: readonly WaitingBuild[];
  readonly running: readonly WaitingBuild[];
  /** When a build of each workspace began last; absent: never. */
  readonly beganAt: ReadonlyMap<string, number>;
  /** Builds that may run at once. */
  readonly atOnce: number;
}

/**
 * The build that begins next; undefined: none may. Workspaces take turns, and none fills the machine: a workspace whose
 * builds take long leaves a place for the others.
 */
export function nextBuild({ waiting, running, beganAt, atOnce }: Turns): WaitingBuild | undefined {
  if (running.length >= atOnce) return undefined;
  const mostOfOne = Math.max(1, Math.ceil(atOnce / 2));
  const runningOf = (workspaceId: string): number => running.filter((one) => one.workspaceId === workspaceId).length;
  const [first] = waiting
    .filter(({ workspaceId }) => runningOf(workspaceId) < mostOfOne)
    .toSorted(
      (a, b) =>
        runningOf(a.workspaceId) - runningOf(b.workspaceId) ||
        (beganAt.get(a.workspaceId) ?? 0) - (beganAt.get(b.workspaceId) ?? 0),
    );
  return first;
}
