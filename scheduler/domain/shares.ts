// How workspaces share the machines of all: weights, guarantees, limits, and the head start of a priority.
// A market is a GPU model as machines report it, or `cpu` for containers without a GPU.

/** GPU model, or `cpu`. */
export type Market = string;
export const CPU_MARKET: Market = 'cpu';

/** Amounts by market: GPUs, or CPU cores in the market `cpu`. */
export type MarketAmounts = Readonly<Record<Market, number>>;

/** Weight and amounts that the operator gave a workspace. */
export interface WorkspaceShare {
  /** How much of what is shared it gets beside others: twice the weight is twice as much. */
  readonly weight: number;
  /** Amounts that it gets before anybody who already has more than was guaranteed to him. */
  readonly guaranteed: MarketAmounts;
  /** Most that it may hold at once. An absent market has no limit. */
  readonly limits: MarketAmounts;
}

export const DEFAULT_SHARE: WorkspaceShare = { weight: 1, guaranteed: {}, limits: {} };

/** Who gets the next machine: the workspace with the smallest share, or the container that waits longest. */
export type SharingOrder = 'share' | 'arrival';

/** How an installation shares its machines. */
export interface Sharing {
  readonly order: SharingOrder;
  /** Seconds until a machine is reserved for a container that needs several GPUs, or half a machine; null: never. */
  readonly reserveAfterSeconds: number | null;
  /**
   * Seconds that a container waits before interruptible containers of others end for it, if its workspace has less
   * than is guaranteed to it; null: none ever does.
   */
  readonly reclaimAfterSeconds: number | null;
  /** Seconds that tasks of such a container have until they are given back. */
  readonly noticeSeconds: number;
  /** Seconds that such a container has run at least, unless a guarantee asks for it. */
  readonly minRunSeconds: number;
}

/** Most seconds of notice. */
export const MOST_NOTICE_SECONDS = 120;

export const DEFAULT_SHARING: Sharing = {
  order: 'share',
  reserveAfterSeconds: 60,
  reclaimAfterSeconds: 5,
  noticeSeconds: 20,
  minRunSeconds: 600,
};

/** Priority of a deployment inside its workspace. */
export const PRIORITIES = ['high', 'normal', 'low'] as const;
export type PriorityClass = (typeof PRIORITIES)[number];

/** Milliseconds by which a container counts as older, or younger, than it is. */
export const HEAD_START_MS: Readonly<Record<PriorityClass, number>> = {
  high: 15 * 60_000,
  normal: 0,
  low: -15 * 60_000,
};
