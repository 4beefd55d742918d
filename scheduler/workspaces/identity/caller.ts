import type { ContainerId, DeploymentId, StubId, TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import type { TokenType } from '../../stores/store/queries/tokens.ts';
import type { Confinement } from './confinement.ts';

export type { TokenType };

/** The caller of an operation. */
export interface Caller {
  readonly workspaceId: WorkspaceId;
  /** The internal number that token records show. */
  readonly workspaceDbId: number;
  readonly tokenId: TokenId;
  readonly type: TokenType;
  readonly isAdmin: boolean;
  /** The token's name for people; absent: none. */
  readonly name?: string;
  /** Epoch milliseconds from which the token is refused; absent: never. */
  readonly expiresAtMs?: number;
  /** Whether this call used the token up; absent: the token counts again. */
  readonly isLast?: true;
  /** Limits of the token beside its type; absent: none. */
  readonly confined?: Confinement;
  /** The session of the web console by which it calls; absent: its own token. */
  readonly console?: { readonly sessionId: string };
  /** The container whose credential it is; only for type `container`. */
  readonly container?: {
    readonly containerId: ContainerId;
    readonly epoch: number;
    readonly stubId: StubId;
    readonly deploymentId: DeploymentId | null;
  };
}
