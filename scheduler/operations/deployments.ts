import { ListDeploymentsRequest, ListDeploymentsResponse } from '#shared/api/deployments.ts';
import { timestampOf } from '#shared/api/fields.ts';
import type { Deployments } from '../deployments/deployments.ts';
import type { Directory } from '../deployments/directory.ts';
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
