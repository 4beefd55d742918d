// The address of a stub, for published clients that call one without a deployment.
import { isUuid } from '#shared/domain/ids.ts';
import type { StubId } from '#shared/domain/ids.ts';
import { DeploymentUrl, DeploymentUrlQuery } from '#shared/api/rest/deployments.ts';
import { AppError } from '#shared/errors.ts';
import { urlTargetOf } from '../../../workspaces/deployments/deployments.ts';
import { invokeUrl, urlFormOf } from '../../../workspaces/deployments/urls.ts';
import { isOutside } from '../../../workspaces/identity/confinement.ts';
import type { DeploymentRouteParts } from './deployments.ts';
import { restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export const stubUrl = (parts: Pick<DeploymentRouteParts, 'directory' | 'urls' | 'originOf'>): RestRoute =>
  restRoute({
    http: 'GET /stub/{stubId}/url',
    summary: 'Where a stub is invoked: one of the workspace, or a public one',
    grants: { scopes: ['read'], confinesToApp: true },
    query: DeploymentUrlQuery,
    answer: DeploymentUrl,
    errors: ['stub_not_found'],
    handle: async ({ caller, params, query, http }) => {
      const id = (params['stubId'] ?? '').toLowerCase();
      const stub = isUuid(id) ? await parts.directory.stub(id as StubId) : undefined;
      const isSeen = stub !== undefined && (stub.workspaceId === caller.workspaceId || stub.public);
      if (!isSeen || isOutside(caller, stub.appId)) throw new AppError('stub_not_found', 'stub not found');
      const { baseUrl } = parts.originOf(http);
      return {
        url: invokeUrl(baseUrl, urlTargetOf(stub, null), parts.urls, urlFormOf(query.url_type ?? '') || 'path'),
      };
    },
  });
