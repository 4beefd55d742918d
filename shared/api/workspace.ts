import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Flag, Text, Uint32 } from './fields.ts';

export const ExportWorkspaceConfigRequest = Type.Object({});
export type ExportWorkspaceConfigRequest = Static<typeof ExportWorkspaceConfigRequest>;

/** The answer of ExportWorkspaceConfig, the only one without `ok`. */
export const ExportWorkspaceConfigResponse = Type.Object({
  gatewayHttpHost: Text(),
  gatewayHttpPort: Uint32(),
  gatewayHttpTls: Flag(),
  gatewayGrpcHost: Text(),
  gatewayGrpcPort: Uint32(),
  gatewayGrpcTls: Flag(),
  workspaceId: Text(),
});
export type ExportWorkspaceConfigResponse = Static<typeof ExportWorkspaceConfigResponse>;
