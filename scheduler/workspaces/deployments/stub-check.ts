// Looks at a stub request as a deploy would, and changes nothing. CheckStub calls it, for `longshore deploy --dry-run`.
// Invariant: what getOrCreate refuses is a problem here, except for ids of objects, volumes and built images.
import { GPU_MODELS, modelMatches } from '#shared/domain/gpus.ts';
import type { CheckStubRequest } from '#shared/api/stubs.ts';
import type { StubConfig } from '../../domain/stub-config.ts';
import type { Caller } from '../identity/caller.ts';
import type { GpuMachine } from './gpu-supply.ts';
import { modelsHereText, modelsOf } from './gpu-supply.ts';
import { normaliseStub, unknownGpusText } from './normalise.ts';
import type { StubLimits } from './stub-limits.ts';
import { callbackRefusal, missingSecrets, supplyLack } from './stub-needs.ts';
import type { StubNeedsParts } from './stub-needs.ts';

export interface StubProblem {
  /** Field of the request; empty: the text says it. */
  readonly field: '' | 'secrets' | 'gpu' | 'pool' | 'callbackUrl' | 'pythonVersion';
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

export interface StubCheckParts extends StubNeedsParts {
  readonly gpuMachines: (caller: Caller['workspaceId']) => Promise<readonly GpuMachine[]>;
}

/** Everything that is wrong with a request, and everything that may go wrong with its deployment. */
export async function checkStub(
  parts: StubCheckParts,
  { workspaceId }: Pick<Caller, 'workspaceId'>,
  request: CheckStubRequest,
  limits: StubLimits | undefined,
): Promise<CheckedStub> {
  const normalised = normaliseStub(request, limits);
  const config = normalised.kind === 'config' ? normalised.config : null;
  const problems: StubProblem[] = [];
  const warnings: string[] = [];
  if (normalised.kind === 'refused')
    problems.push(...normalised.refusals.map((text) => ({ field: '' as const, value: '', text })));
  const callback = config === null ? undefined : callbackRefusal(parts, config);
  if (callback !== undefined) problems.push({ field: 'callbackUrl', value: config?.callbackUrl ?? '', text: callback });
  const asked = request.secrets.map(({ name }) => name);
  for (const name of await missingSecrets(parts, workspaceId, asked, config))
    problems.push({ field: 'secrets', value: name, text: `there is no secret ${name} in this workspace` });
  const { unsupportedGpus: unknown } = normalised;
  const machines = unknown.length === 0 ? [] : await parts.gpuMachines(workspaceId);
  for (const name of unknown) {
    if (machines.some(({ gpus }) => gpus.some(({ model }) => modelMatches(model, [name])))) continue;
    const here = modelsHereText(modelsOf(machines));
    problems.push({
      field: 'gpu',
      value: name,
      text: `no GPU model is called ${name}: ${here}; known are ${GPU_MODELS.join(', ')}`,
    });
  }
  const others = normalised.kind === 'config' ? normalised.warnMsg.replace(unknownGpusText(unknown), '').trim() : '';
  if (others !== '') warnings.push(others);
  // With an image of its own, the base image of its Python version is not needed.
  const asBuilt = config === null || request.builtFrom === '' ? config : { ...config, imageId: request.builtFrom };
  const python = asBuilt === null ? undefined : parts.pythonProblem(workspaceId, asBuilt);
  if (python !== undefined)
    problems.push({ field: 'pythonVersion', value: asBuilt?.pythonVersion ?? '', text: python });
  const lack = await supplyLack(parts, workspaceId, { pool: request.pool }, asBuilt);
  if (lack?.of === 'unknown_pool')
    problems.push({ field: 'pool', value: lack.pool, text: lack.text.replace(/\.$/, '') });
  // No machine has a model that nobody knows: the problem above says it.
  else if (lack?.of === 'pool' || (lack !== undefined && !problems.some(({ field }) => field === 'gpu')))
    warnings.push(lack.text);
  return { problems, warnings, config };
}
