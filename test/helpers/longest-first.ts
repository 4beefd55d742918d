/**
 * The order of test files in a run: the longest first, so that no long file runs alone at the end. Vitest knows
 * durations only where an earlier run is at hand, and otherwise goes by the size of files.
 */
import { BaseSequencer } from 'vitest/node';
import type { TestSpecification } from 'vitest/node';

/** Files that take more than 20 s among others, the longest first. */
export const LONGEST: readonly string[] = [
  'test/e2e/up.test.ts',
  'test/e2e/python-module.test.ts',
  'test/e2e/failures.test.ts',
  'test/e2e/functions.test.ts',
  'test/e2e/pods.test.ts',
  'test/e2e/console.test.ts',
  'test/e2e/beam-js.test.ts',
  'test/e2e/volume-files.test.ts',
  'test/e2e/rollouts.test.ts',
  'test/integration/replicas-leader.test.ts',
  'test/integration/agent.test.ts',
  'test/integration/event-webhooks.test.ts',
  'test/integration/event-webhooks-rules.test.ts',
  'test/integration/event-streams.test.ts',
  'test/integration/once-only.test.ts',
  'test/integration/runner-forks.test.ts',
  'test/integration/replicas.test.ts',
  'test/integration/webhook-routes.test.ts',
  'test/integration/cli-containers.test.ts',
  'test/integration/rollouts.test.ts',
];

/** The paths with those of the list first, in its order; the others stay as they are. */
export function longestFirst<T>(files: readonly T[], pathOf: (file: T) => string): T[] {
  const placeOf = (file: T): number => {
    const place = LONGEST.findIndex((name) => pathOf(file).endsWith(`/${name}`));
    return place === -1 ? LONGEST.length : place;
  };
  return files.toSorted((a, b) => placeOf(a) - placeOf(b));
}

export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const byProject = Map.groupBy(await super.sort(files), (file) => file.project.name);
    return [...byProject.values()].flatMap((some) => longestFirst(some, (file) => file.moduleId));
  }
}
