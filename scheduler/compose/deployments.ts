// Deployments as invocations name them: the cached targets of calls, and the directory of stubs.
import { Directory } from '../workspaces/deployments/directory.ts';
import { Targets } from '../workspaces/deployments/targets.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Identity } from './identity.ts';

export interface DeploymentParts {
  readonly targets: Targets;
  readonly directory: Directory;
}

export function openDeployments({ db, log }: Infrastructure, { invalidation }: Identity): DeploymentParts {
  return { targets: new Targets({ db, log, invalidation }), directory: new Directory(db) };
}
