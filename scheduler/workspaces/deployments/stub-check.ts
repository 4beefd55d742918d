// Looks at a stub request as a deploy would, and changes nothing. CheckStub calls it, for `longshore deploy --dry-run`.
// Invariant: what getOrCreate refuses is a problem here, except for ids of objects, volumes and built images.
import { GPU_MODELS, gpuMatches } from '#shared/domain/gpus.ts';
import type { GetOrCreateStubRequest } from '#shared/api/stubs.ts';
import { warningOf } from '../../domain/named-pool.ts';
import type { NamedPool } from '../../domain/named-pool.ts';
import { poolNameOf } from '../../domain/pools.ts';
import type { StubConfig } from '../../domain/stub-config.ts';
import type { Caller } from '../identity/caller.ts';
import type { Secrets } from '../secrets/service.ts';
import { bucketSecrets } from './buckets.ts';
import type { GpuMachine } from './gpu-supply.ts';
import type { FeasibilityWarning } from './needs.ts';
import { normaliseStub, unknownGpusText } from './normalise.ts';
import type { StubLimits } from './stub-limits.ts';

export interface StubProblem {
  /** Field of the request; empty: the text says it. */
  readonly field: '' | 'secrets' | 'gpu' | 'pool' | 'callbackUrl';
  /** Name that nothing has; empty: the text says it. */
  readonly value: string;
  readonly text: string;
}

export interface CheckedStub {
  readonly problems: readonly StubProblem[];
  readonly warnings: readonly string[];
  /** Configuration that the stub would have; null: it is refused. */
  readonly config: StubConfig | null;
}

export interface StubCheckParts {
  readonly secrets: Pick<Secrets, 'firstUnknown'>;
  readonly callbackProblem: (url: string) => string | undefined;
  readonly gpuMachines: (caller: Caller['workspaceId']) => Promise<readonly GpuMachine[]>;
  readonly feasibilityWarningOf: (
    workspaceId: Caller['workspaceId'],
    config: StubConfig,
  ) => FeasibilityWarning | undefined;
  readonly feasibilityText: (warning: FeasibilityWarning | undefined) => string;
  readonly poolNamed: (workspaceId: Caller['workspaceId'], name: string) => Promise<NamedPool>;
}

/** Everything that is wrong with a request, and everything that may go wrong with its deployment. */
export async function checkStub(
  parts: StubCheckParts,
  { workspaceId }: Pick<Caller, 'workspaceId'>,
  request: GetOrCreateStubRequest,
  limits: StubLimits | undefined,
): Promise<CheckedStub> {
  const normalised = normaliseStub(request, limits);
  const config = normalised.kind === 'config' ? normalised.config : null;
  const problems: StubProblem[] = [];
  const warnings: string[] = [];
  if (normalised.kind === 'refused') problems.push({ field: '', value: '', text: normalised.errMsg });
  const value = config?.callbackUrl ?? '';
  const callback = value === '' ? undefined : parts.callbackProblem(value);
  if (callback !== undefined) problems.push({ field: 'callbackUrl', value, text: `callbackUrl ${callback}` });
  const wanted = [...request.secrets.map(({ name }) => name), ...(config === null ? [] : bucketSecrets(config))];
  for (const name of new Set(wanted)) {
    if ((await parts.secrets.firstUnknown(workspaceId, [name])) === undefined) continue;
    problems.push({ field: 'secrets', value: name, text: `there is no secret ${name} in this workspace` });
  }
  if (normalised.kind === 'config') {
    const { unsupportedGpus: unknown, warnMsg } = normalised;
    const machines = unknown.length === 0 ? [] : await parts.gpuMachines(workspaceId);
    for (const name of unknown) {
      if (machines.some(({ gpuModels }) => gpuModels.some((model) => gpuMatches(model, [name])))) continue;
      const models = [...new Set(machines.flatMap(({ gpuModels }) => gpuModels))].toSorted();
      const here = models.length === 0 ? 'no machine here has a GPU' : `machines here have ${models.join(', ')}`;
      problems.push({
        field: 'gpu',
        value: name,
        text: `no GPU model is called ${name}: ${here}; known are ${GPU_MODELS.join(', ')}`,
      });
    }
    const others = warnMsg.replace(unknownGpusText(unknown), '').trim();
    if (others !== '') warnings.push(others);
  }
  const poolName = poolNameOf({ pool: request.pool });
  const { lack } = await parts.poolNamed(workspaceId, poolName);
  if (lack?.isUnknown === true)
    problems.push({ field: 'pool', value: poolName, text: warningOf(lack).replace(/\.$/, '') });
  else if (lack !== undefined) warnings.push(warningOf(lack));
  // A model that nobody knows is told above.
  else if (config !== null && !problems.some(({ field }) => field === 'gpu')) {
    const warning = parts.feasibilityText(parts.feasibilityWarningOf(workspaceId, config));
    if (warning !== '') warnings.push(warning);
  }
  return { problems, warnings, config };
}
