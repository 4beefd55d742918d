// The time of a schedule that is told after its deployment was made: published Python clients deploy first, and say
// when it runs afterwards. Until then the deployment makes no tasks.
// Invariant: a stub gets its schedule once, and another fingerprint with it. So no later deployment begins with the
// time of an earlier one.
import { sha256Hex } from '#shared/domain/ids.ts';
import { kindOf } from '#shared/domain/status.ts';
import { storedConfig } from '../../domain/stub-config.ts';
import { readWhen } from '../../domain/ticks.ts';
import type { When } from '../../domain/ticks.ts';
import type { Db } from '../../stores/store/db.ts';
import { setStubSchedule, stubById } from '../../stores/store/queries/stubs.ts';
import type { Caller } from '../identity/caller.ts';
import type { Deployments } from './deployments.ts';
import { canonicalJson } from './stubs.ts';
import type { Targets } from './targets.ts';

export interface LaterScheduleParts {
  readonly db: Db;
  readonly deployments: Pick<Deployments, 'find'>;
  readonly targets: Pick<Targets, 'changed'>;
}

/** Has a deployment run at these times. @returns why it does not; undefined: it does */
export async function scheduleLater(
  { db, deployments, targets }: LaterScheduleParts,
  caller: Pick<Caller, 'workspaceId'>,
  { deploymentId, stubId, when }: { readonly deploymentId: string; readonly stubId: string; readonly when: string },
): Promise<string | undefined> {
  const deployment = await deployments.find(caller, deploymentId);
  if (deployment === undefined || deployment.stubId !== stubId.toLowerCase()) return 'Deployment not found';
  if (kindOf(deployment.stubType) !== 'schedule') return `${deployment.name} is no schedule`;
  const read = readWhen({ when });
  if (typeof read === 'string') return read.replaceAll('extra.when', 'when');
  const stub = await stubById(db, deployment.stubId);
  if (stub === undefined) return 'stub not found';
  const config = { ...stub.config, schedule: read };
  await setStubSchedule(db, stub.id, { schedule: read, configHash: sha256Hex(canonicalJson(config)) });
  const now = storedConfig((await stubById(db, stub.id))?.config ?? stub.config).schedule;
  if (!isSame(now, read)) return `${deployment.name} runs at ${now?.when} already: deploy it again to change that`;
  await targets.changed(deployment.id);
  return undefined;
}

const isSame = (one: When | undefined, other: When): boolean =>
  one?.when === other.when && one.timezone === other.timezone;
