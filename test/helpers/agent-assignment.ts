import { randomBytes } from 'node:crypto';
import type { Assignment, ContainerSpec } from '#shared/protocol/generated/messages.ts';

/** An assignment of a Python endpoint; fields that a test leaves out have ordinary values. */
export function anAssignment(
  spec: Partial<ContainerSpec>,
  rest: Partial<Assignment> = {},
): Assignment & { containerId: string; assignmentId: string } {
  const containerId = `endpoint-${randomBytes(6).toString('hex')}`;
  return {
    assignmentId: randomBytes(8).toString('hex'),
    containerId,
    epoch: 1,
    ...rest,
    spec: {
      workspaceId: 'ws-1',
      stubId: 'stub-1',
      deploymentId: 'dep-1',
      stubType: 'endpoint/deployment',
      handler: 'app:handler',
      image: '',
      pythonVersion: 'python3.11',
      cpuMillicores: 1000,
      memoryBytes: 256 * 1024 * 1024,
      workers: 1,
      workerMode: '',
      concurrentRequests: 1,
      containerToken: 'container-token',
      startTimeoutMs: 60_000,
      volumes: [],
      ...spec,
    },
  };
}
