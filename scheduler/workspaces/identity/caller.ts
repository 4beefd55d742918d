import type { ContainerId, DeploymentId, StubId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import type { TokenType } from '../../stores/store/queries/tokens.ts';

export type { TokenType };

/** The caller of an operation. */
export interface Caller {
  readonly workspaceId: WorkspaceId;
  /** The internal number that token records show. */
  readonly workspaceDbId: number;
  readonly tokenId: TokenId;
  readonly type: TokenType;
  readonly isAdmin: boolean;
  /** The container whose credential it is; only for type `container`. */
  readonly container?: {
    readonly containerId: ContainerId;
    readonly epoch: number;
    readonly stubId: StubId;
    readonly deploymentId: DeploymentId | null;
  };
}
