// Needs of a stub besides itself: an address for its callbacks, secrets, a pool, machines. Making a stub (stubs.ts)
// and looking at a request (stub-check.ts) ask here, so that neither lets pass what the other refuses.
import type { Caller } from '../identity/caller.ts';
import { admitTo, warningOf } from '../../domain/named-pool.ts';
import type { NamedPool } from '../../domain/named-pool.ts';
import { poolNameOf } from '../../domain/pools.ts';
import type { StubConfig } from '../../domain/stub-config.ts';
import type { Secrets } from '../secrets/service.ts';
import { bucketSecrets } from './buckets.ts';
import type { FeasibilityWarning } from './needs.ts';

type WorkspaceId = Caller['workspaceId'];

export interface StubNeedsParts {
  readonly secrets: Pick<Secrets, 'unknownOf'>;
  /** Why no callback can be sent to that URL; undefined: it may be tried. */
  readonly callbackProblem: (url: string) => string | undefined;
  /** Why no present machine can serve the configuration, and the effect on calls; undefined: a machine may. */
  readonly feasibilityWarningOf: (workspaceId: WorkspaceId, config: StubConfig) => FeasibilityWarning | undefined;
  /** Why no machine can run the stub in the base image of its Python; undefined: one can, or it has another image. */
  readonly pythonProblem: (workspaceId: WorkspaceId, config: StubConfig) => string | undefined;
  /** The pool of that name, as far as the workspace may use it. */
  readonly poolNamed: (workspaceId: WorkspaceId, name: string) => Promise<NamedPool>;
}

/** Why no callback can be sent, with the field; undefined: none is asked for, or it may be tried. */
export function callbackRefusal({ callbackProblem }: StubNeedsParts, { callbackUrl }: StubConfig): string | undefined {
  const problem = callbackUrl === '' ? undefined : callbackProblem(callbackUrl);
  return problem === undefined ? undefined : `callbackUrl ${problem}`;
}

/** Secrets that the workspace does not have, of these and of those of the buckets. */
export const missingSecrets = (
  { secrets }: StubNeedsParts,
  workspaceId: WorkspaceId,
  names: readonly string[],
  config: StubConfig | null,
): Promise<readonly string[]> =>
  secrets.unknownOf(workspaceId, [...names, ...(config === null ? [] : bucketSecrets(config))]);

/** Lack of supply: the pool is not there, or lacks something, or no machine can serve the configuration. */
export interface SupplyLack {
  readonly of: 'unknown_pool' | 'pool' | 'machines';
  readonly pool: string;
  readonly text: string;
}

/** @returns undefined: nothing is lacking, as far as is known */
export async function supplyLack(
  { poolNamed, feasibilityWarningOf }: StubNeedsParts,
  workspaceId: WorkspaceId,
  asked: Parameters<typeof poolNameOf>[0],
  config: StubConfig | null,
): Promise<SupplyLack | undefined> {
  const pool = poolNameOf(asked);
  const { lack } = await poolNamed(workspaceId, pool);
  if (lack !== undefined) return { of: lack.isUnknown === true ? 'unknown_pool' : 'pool', pool, text: warningOf(lack) };
  const warning = config === null ? undefined : feasibilityWarningOf(workspaceId, config);
  return warning === undefined ? undefined : { of: 'machines', pool, text: feasibilityText(warning) };
}

/** Warning text about feasibility; a lack in the stub's own pool says more than the general sentence. */
const feasibilityText = (warning: FeasibilityWarning): string =>
  warningOf({
    says: `${warning.says}; ${warning.effect}`,
    step: warning.step ?? `ask for what a machine has (\`longshore machine list\`), or admit one: ${admitTo('')}`,
  });
