import { ExportWorkspaceConfigRequest, ExportWorkspaceConfigResponse } from '#shared/api/workspace.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

const HTTPS_PORT = 443;
const HTTP_PORT = 80;

/** Address of this installation, as its clients save it. No gRPC port is served yet, so none is named. */
export function exportWorkspaceConfig(): Operation {
  return operation({
    name: 'ExportWorkspaceConfig',
    http: 'GET /workspace/config',
    scope: 'full',
    request: ExportWorkspaceConfigRequest,
    response: ExportWorkspaceConfigResponse,
    handle: (caller, _request, origin) => {
      const url = new URL(origin.baseUrl);
      const isTls = url.protocol === 'https:';
      return {
        gatewayHttpHost: url.hostname,
        gatewayHttpPort: url.port === '' ? (isTls ? HTTPS_PORT : HTTP_PORT) : Number(url.port),
        gatewayHttpTls: isTls,
        gatewayGrpcHost: '',
        gatewayGrpcPort: 0,
        gatewayGrpcTls: false,
        workspaceId: caller.workspaceId,
      };
    },
  });
}
