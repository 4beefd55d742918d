// Checks the engine's abilities when the agent starts, and again every minute while a check fails: the condition
// Preflight.
import type { Log } from '#shared/log.ts';
import type { AgentConfig } from '../config.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import { checkEngine } from './check.ts';

const AGAIN_MS = 60_000;

export interface PreflightParts {
  readonly config: AgentConfig;
  readonly runtime: ContainerRuntime;
  readonly conditions: Pick<Conditions, 'set' | 'names'>;
  readonly log: Log;
}

/**
 * Begins the checks. A failure stops nothing: it is logged with its cure, and the condition holds until it passes.
 * @returns a function that ends the repetition
 */
export async function startPreflight(parts: PreflightParts): Promise<() => void> {
  const { conditions, log } = parts;
  await look(parts);
  const timer = setInterval(() => {
    if (conditions.names.includes('Preflight'))
      look(parts).catch((error: unknown) => log.warn({ err: error }, 'the machine could not be checked again'));
  }, AGAIN_MS);
  return () => clearInterval(timer);
}

async function look({ config, runtime, conditions, log }: PreflightParts): Promise<void> {
  const bad = (await checkEngine(config, runtime)).filter(({ level }) => level === 'failed');
  for (const { check, found, remedy } of bad) log.error({ check, found, remedy }, 'a check of the host failed');
  conditions.set('Preflight', bad.length > 0);
}
