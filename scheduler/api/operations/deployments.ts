import {
  DeleteDeploymentResponse,
  ListDeploymentsRequest,
  ListDeploymentsResponse,
  OneDeploymentRequest,
  ScaleDeploymentRequest,
} from '#shared/api/deployments.ts';
import { Done, timestampOf } from '#shared/api/fields.ts';
import { isUuid } from '#shared/domain/ids.ts';
import type { ChangeOutcome, DeleteOutcome, Deployments } from '../../workspaces/deployments/deployments.ts';
import { urlTargetOf } from '../../workspaces/deployments/deployments.ts';
import type { Directory } from '../../workspaces/deployments/directory.ts';
import { invokeUrl, nameUrl } from '../../workspaces/deployments/urls.ts';
import type { UrlSettings } from '../../workspaces/deployments/urls.ts';
import { actorOf } from '../../workspaces/events/audit.ts';
import type { DeploymentRow } from '../../stores/store/queries/deployments.ts';
import type { Caller } from '../../workspaces/identity/caller.ts';
import { isOutside, ownApp } from '../../workspaces/identity/confinement.ts';
import { booleanFilter, filterValues, firstFilter, limitOf, numberFilter, spellings } from './list-rules.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export function listDeployments(deployments: Deployments, directory: Directory, urls: UrlSettings): Operation {
  return operation({
    name: 'ListDeployments',
    http: 'GET /deployments',
    scope: 'any',
    grants: { scopes: ['read'], confinesToApp: true },
    request: ListDeploymentsRequest,
    response: ListDeploymentsResponse,
    handle: async (caller, request, { baseUrl }) => {
      const name = firstFilter(request.filters, ['name']);
      const active = booleanFilter(firstFilter(request.filters, ['active']));
      const version = numberFilter(firstFilter(request.filters, ['version']));
      // A text that is no id selects nothing: without the filter, its caller would act on other deployments.
      const ids = filterValues(request.filters, ['id', 'ids', ...spellings('deployment', 'id')])
        ?.filter(isUuid)
        .map((id) => id.toLowerCase());
      const limit = limitOf(request.limit);
      const rows = await deployments.list(caller, {
        limit,
        ...ownApp(caller),
        ...(name === undefined ? {} : { nameContains: name }),
        ...(active === undefined ? {} : { active }),
        ...(version === undefined ? {} : { version }),
        ...(ids === undefined ? {} : { ids }),
      });
      const workspaceName = await directory.workspaceName(caller.workspaceId);
      const stubs = await directory.stubs(rows.map((row) => row.stubId));
      // A name selects all of its versions; another filter may leave out the one that serves.
      const hasAllVersions =
        rows.length < limit &&
        active === undefined &&
        version === undefined &&
        ids === undefined &&
        caller.confined?.appId === undefined;
      const serving = await directory.servingDeployments(caller.workspaceId, rows, hasAllVersions);
      const urlOf = (row: DeploymentRow): string => {
        const stub = stubs.get(row.stubId);
        if (stub === undefined) return '';
        const target = urlTargetOf(stub, row);
        const how = { workspaceId: row.workspaceId, withHost: false };
        return serving.has(row.id) ? nameUrl(baseUrl, target, how, urls) : invokeUrl(baseUrl, target, urls);
      };
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
          serving: serving.has(row.id),
          rollout: row.rollout ?? '',
          url: urlOf(row),
        })),
      };
    },
  });
}

export function stopDeployment(deployments: Pick<Deployments, 'find' | 'stop'>): Operation {
  return operation({
    name: 'StopDeployment',
    http: 'POST /deployments/{id}/stop',
    scope: 'full',
    grants: { confinesToApp: true },
    request: OneDeploymentRequest,
    response: Done,
    handle: async (caller, request, { from }) =>
      said(
        (await hidden(deployments, caller, request.id)) ??
          (await deployments.stop(caller, request.id, actorOf(caller, from))),
      ),
  });
}

export function startDeployment(deployments: Pick<Deployments, 'find' | 'start'>): Operation {
  return operation({
    name: 'StartDeployment',
    http: 'POST /deployments/{id}/start',
    scope: 'full',
    grants: { confinesToApp: true },
    request: OneDeploymentRequest,
    response: Done,
    handle: async (caller, request, { from }) =>
      said(
        (await hidden(deployments, caller, request.id)) ??
          (await deployments.start(caller, request.id, actorOf(caller, from))),
      ),
  });
}

export function scaleDeployment(deployments: Pick<Deployments, 'find' | 'scale'>): Operation {
  return operation({
    name: 'ScaleDeployment',
    http: 'POST /deployments/{id}/scale',
    scope: 'full',
    grants: { confinesToApp: true },
    request: ScaleDeploymentRequest,
    response: Done,
    handle: async (caller, request, { from }) =>
      said(
        (await hidden(deployments, caller, request.id)) ??
          (await deployments.scale(caller, request.id, request.containers, actorOf(caller, from))),
      ),
  });
}

export function deleteDeployment(deployments: Pick<Deployments, 'find' | 'delete'>): Operation {
  return operation({
    name: 'DeleteDeployment',
    http: 'DELETE /deployments/{id}',
    scope: 'full',
    grants: { confinesToApp: true },
    request: OneDeploymentRequest,
    response: DeleteDeploymentResponse,
    handle: async (caller, request, { from }) => {
      const outcome: DeleteOutcome =
        (await hidden(deployments, caller, request.id)) ??
        (await deployments.delete(caller, request.id, actorOf(caller, from)));
      return { ...said(outcome), cancelledTasks: outcome.kind === 'changed' ? outcome.cancelledTasks : 0 };
    },
  });
}

/** The outcome where the caller's token counts for another app alone; undefined: the deployment is not hidden. */
async function hidden(
  deployments: Pick<Deployments, 'find'>,
  caller: Caller,
  id: string,
): Promise<{ readonly kind: 'not_found' } | undefined> {
  if (caller.confined === undefined) return undefined;
  const row = await deployments.find(caller, id);
  return row === undefined || isOutside(caller, row.appId) ? { kind: 'not_found' } : undefined;
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
