// The end of a container's start: the sign by which it counts as ready. Pods have a program, all others a runner. Pure.
import type { StoredSpec } from '../../fleet/containers/spec.ts';

/** Phases of a start, `image, code, then its program`. */
export const startPhases = (spec: StoredSpec): string => `image, code, then its ${isPod(spec) ? 'program' : 'app'}`;

/** Awaited event, `its program to take connections on port 8000`. */
export function awaitedReadiness(spec: StoredSpec): string {
  if (!isPod(spec)) return 'its runner to say that it is ready';
  const { readinessProbe: probe } = spec.wire;
  if (probe?.type === 'command')
    return `its readiness probe to end with 0: \`${shortened((probe.command ?? []).join(' '))}\``;
  const port = awaitedPort(spec);
  if (probe?.type === 'http')
    return `its program to answer \`GET ${[probe.path, ...(probe.morePaths ?? [])].join('` or `')}\` on port ${port} with a status from 200 to 399`;
  return port === undefined ? 'its program to start' : `its program to take connections on port ${port}`;
}

/** Steps where a start takes too long. */
export function readinessSteps(spec: StoredSpec, containerId: string): string[] {
  const port = awaitedPort(spec);
  const listen = `let its program listen on port ${port}, or deploy it with the port that it has (\`ports\`)`;
  return [...(port === undefined ? [] : [listen]), logsStep(containerId)];
}

export const logsStep = (containerId: string): string =>
  `\`longshore logs --container ${containerId}\` shows what it wrote`;

/** The port of a pod that has to answer; undefined: its start waits for another sign. */
function awaitedPort(spec: StoredSpec): number | undefined {
  if (!isPod(spec)) return undefined;
  const { readinessProbe: probe, ports } = spec.wire;
  return probe?.type === 'command' ? undefined : probe?.port || ports?.[0];
}

const MOST_COMMAND = 200;
const shortened = (text: string): string => (text.length <= MOST_COMMAND ? text : `${text.slice(0, MOST_COMMAND)}…`);

/** Sandboxes are ready at once, so only pods count. */
const isPod = (spec: StoredSpec): boolean => spec.kind === 'pod';
