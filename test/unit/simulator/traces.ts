// Traces for tests of the simulator, and their results.
import { Random } from '#scheduler/control/simulator/random.ts';
import { Simulation } from '#scheduler/control/simulator/simulation.ts';
import type { Policy, PolicyResult, WorkspaceResult } from '#scheduler/control/simulator/simulation.ts';
import { readTraceLine } from '#scheduler/control/simulator/trace.ts';

export type Line = Readonly<Record<string, unknown>>;

export function simulated(lines: readonly Line[], policy: Policy = 'share', seed = 1): PolicyResult {
  const simulation = new Simulation(policy, seed);
  for (const line of lines) simulation.accept(readTraceLine(line));
  return simulation.finish().result;
}

export function workspaceOf({ workspaces }: PolicyResult, name: string): WorkspaceResult {
  const found = workspaces.find(({ workspace }) => workspace === name);
  if (found === undefined) throw new Error(`there is no workspace ${name}`);
  return found;
}

/**
 * 50 machines with 8 GPUs and 100 workspaces. The first one asks for 20 times its fair share, in 20 deployments; the
 * others ask for 0.9 of theirs. Each task has a container of its own, for a minute on average.
 */
export function crowd(minutes: number): readonly Line[] {
  const [workspaces, fair, deployments] = [100, 4, 20];
  const deploys: Line[] = [];
  const tasks: (Line & { readonly t: number })[] = [];
  for (let workspace = 0; workspace < workspaces; workspace += 1) {
    const random = new Random('crowd', workspace);
    const many = workspace === 0 ? deployments : 1;
    for (let number = 0; number < many; number += 1)
      deploys.push({
        kind: 'deploy',
        deployment: `d-${workspace}-${number}`,
        workspace: `w-${workspace}`,
        gpu: 'H100',
        one_task: true,
        start_seconds: 2,
      });
    const everySeconds = 60 / ((workspace === 0 ? 20 : 0.9) * fair);
    for (let t = random.exponential(everySeconds); t < minutes * 60; t += random.exponential(everySeconds))
      tasks.push({
        t,
        kind: 'task',
        deployment: `d-${workspace}-${Math.floor(random.next() * many)}`,
        seconds: random.exponential(60),
      });
  }
  return [
    { kind: 'machine', machine: 'm', count: 50, gpu: 'H100', gpus: 8 },
    ...deploys,
    ...tasks.toSorted((a, b) => a.t - b.t),
    { t: minutes * 60, kind: 'end' },
  ];
}
