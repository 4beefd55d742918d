import {
  ListDeploymentsRequest,
  ListDeploymentsResponse,
  OneDeploymentRequest,
  ScaleDeploymentRequest,
} from '#shared/api/deployments.ts';
import { Done, timestampOf } from '#shared/api/fields.ts';
import type { ChangeOutcome, Deployments } from '../../workspaces/deployments/deployments.ts';
import type { Directory } from '../../workspaces/deployments/directory.ts';
import { booleanFilter, firstFilter, limitOf, numberFilter } from './list-rules.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export function listDeployments(deployments: Deployments, directory: Directory): Operation {
  return operation({
    name: 'ListDeployments',
    http: 'GET /deployments',
    scope: 'any',
    request: ListDeploymentsRequest,
    response: ListDeploymentsResponse,
    handle: async (caller, request) => {
      const name = firstFilter(request.filters, ['name']);
      const active = booleanFilter(firstFilter(request.filters, ['active']));
      const version = numberFilter(firstFilter(request.filters, ['version']));
      const rows = await deployments.list(caller, {
        limit: limitOf(request.limit),
        ...(name === undefined ? {} : { nameContains: name }),
        ...(active === undefined ? {} : { active }),
        ...(version === undefined ? {} : { version }),
      });
      const workspaceName = await directory.workspaceName(caller.workspaceId);
      const stubs = await directory.stubs(rows.map((row) => row.stubId));
      return {
        ok: true,
        errMsg: '',
        deployments: rows.map((row) => ({
          id: row.id,
          name: row.name,
          active: row.active,
          stubId: row.stubId,
          stubType: row.stubType,
          stubName: stubs.get(row.stubId)?.name ?? '',
          version: row.version,
          workspaceId: row.workspaceId,
          workspaceName,
          createdAt: timestampOf(row.createdAtMs),
          updatedAt: timestampOf(row.updatedAtMs),
          appId: row.appId,
        })),
      };
    },
  });
}

export function stopDeployment(deployments: Pick<Deployments, 'stop'>): Operation {
  return operation({
    name: 'StopDeployment',
    http: 'POST /deployments/{id}/stop',
    scope: 'full',
    request: OneDeploymentRequest,
    response: Done,
    handle: async (caller, request) => said(await deployments.stop(caller, request.id)),
  });
}

export function startDeployment(deployments: Pick<Deployments, 'start'>): Operation {
  return operation({
    name: 'StartDeployment',
    http: 'POST /deployments/{id}/start',
    scope: 'full',
    request: OneDeploymentRequest,
    response: Done,
    handle: async (caller, request) => said(await deployments.start(caller, request.id)),
  });
}

export function scaleDeployment(deployments: Pick<Deployments, 'scale'>): Operation {
  return operation({
    name: 'ScaleDeployment',
    http: 'POST /deployments/{id}/scale',
    scope: 'full',
    request: ScaleDeploymentRequest,
    response: Done,
    handle: async (caller, request) => said(await deployments.scale(caller, request.id, request.containers)),
  });
}

export function deleteDeployment(deployments: Pick<Deployments, 'delete'>): Operation {
  return operation({
    name: 'DeleteDeployment',
    http: 'DELETE /deployments/{id}',
    scope: 'full',
    request: OneDeploymentRequest,
    response: Done,
    handle: async (caller, request) => said(await deployments.delete(caller, request.id)),
  });
}

function said(outcome: ChangeOutcome): Done {
  switch (outcome.kind) {
    case 'changed':
      return { ok: true, errMsg: '' };
    case 'not_found':
      return { ok: false, errMsg: 'Deployment not found' };
    case 'refused':
      return { ok: false, errMsg: outcome.text };
  }
}
