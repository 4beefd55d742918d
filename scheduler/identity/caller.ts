import type { ContainerId, DeploymentId, StubId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import type { TokenType } from '../store/queries/tokens.ts';

export type { TokenType };

/** Who calls, as every operation sees it. */
export interface Caller {
  readonly workspaceId: WorkspaceId;
  /** The internal number that token records show. */
  readonly workspaceDbId: number;
  readonly tokenId: TokenId;
  readonly type: TokenType;
  readonly isAdmin: boolean;
  /** Only for type `container`: whose credential it is. */
  readonly container?: {
    readonly containerId: ContainerId;
    readonly epoch: number;
    readonly stubId: StubId;
    readonly deploymentId: DeploymentId | null;
  };
}
