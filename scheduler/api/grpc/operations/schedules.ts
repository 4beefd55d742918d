// The time of a schedule, told after its deployment.
import { FunctionScheduleRequest, FunctionScheduleResponse } from '#shared/api/calls.ts';
import { scheduleLater } from '../../../workspaces/deployments/later-schedule.ts';
import type { LaterScheduleParts } from '../../../workspaces/deployments/later-schedule.ts';
import { unrouted } from '../../operations/operation.ts';
import type { UnroutedOperation } from '../../operations/operation.ts';

export type ScheduleParts = LaterScheduleParts;

export function functionSchedule(parts: ScheduleParts): UnroutedOperation {
  return unrouted({
    name: 'FunctionSchedule',
    scope: 'full',
    request: FunctionScheduleRequest,
    response: FunctionScheduleResponse,
    handle: async (caller, request) => {
      const errMsg = (await scheduleLater(parts, caller, request)) ?? '';
      return { ok: errMsg === '', errMsg, scheduledJobId: errMsg === '' ? request.deploymentId : '' };
    },
  });
}
