import { ExportWorkspaceConfigRequest, ExportWorkspaceConfigResponse } from '#shared/api/workspace.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

const HTTPS_PORT = 443;
const HTTP_PORT = 80;

/** Where published clients speak gRPC. */
export interface GrpcPlace {
  /** Empty: the host by which the caller reached us. */
  readonly host: string;
  readonly port: number;
}

/**
 * Address of this installation, as its clients save it.
 * @param grpcPlace - null: gRPC is not served
 */
export function exportWorkspaceConfig(grpcPlace: () => GrpcPlace | null): Operation {
  return operation({
    name: 'ExportWorkspaceConfig',
    http: 'GET /workspace/config',
    scope: 'full',
    request: ExportWorkspaceConfigRequest,
    response: ExportWorkspaceConfigResponse,
    handle: (caller, _request, origin) => {
      const url = new URL(origin.baseUrl);
      const isTls = url.protocol === 'https:';
      const grpc = grpcPlace();
      return {
        gatewayHttpHost: url.hostname,
        gatewayHttpPort: url.port === '' ? (isTls ? HTTPS_PORT : HTTP_PORT) : Number(url.port),
        gatewayHttpTls: isTls,
        gatewayGrpcHost: grpc === null ? '' : grpc.host || url.hostname,
        gatewayGrpcPort: grpc?.port ?? 0,
        // Published clients speak TLS to this port, and to no other.
        gatewayGrpcTls: grpc?.port === HTTPS_PORT,
        workspaceId: caller.workspaceId,
      };
    },
  });
}
