// The target of a call that names its stub.
import { isUuid } from '#shared/domain/ids.ts';
import type { Target } from '../../../domain/stub-config.ts';
import type { Targets } from '../../../workspaces/deployments/targets.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { invokeProblem } from '../../../workspaces/identity/confinement.ts';

export interface TargetParts {
  readonly targets: Pick<Targets, 'byStub'>;
}

export const NO_STUB = 'stub not found';
const STOPPED = 'deployment stopped';

/** Finds the target of a stub of the caller's workspace. @returns a text, where the caller may not use it: why */
export async function targetOf(
  { targets }: TargetParts,
  caller: Caller,
  stubId: string,
  kinds: readonly string[],
): Promise<Target | string> {
  const id = stubId.toLowerCase();
  const target = isUuid(id) ? await targets.byStub(id) : undefined;
  if (target === undefined || target.workspaceId !== caller.workspaceId || !kinds.includes(target.kind)) return NO_STUB;
  return invokeProblem(caller, target.appId) ?? (target.active ? target : STOPPED);
}
