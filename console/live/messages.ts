// Messages between a tab and the shared worker.
import type { Follow, Told } from './streams.ts';

export type ToWorker =
  | { readonly kind: 'key'; readonly key: string | null }
  | { readonly kind: 'follow'; readonly id: number; readonly follow: Follow }
  | { readonly kind: 'unfollow'; readonly id: number }
  | { readonly kind: 'here' }
  | { readonly kind: 'gone' };

export type ToTab = { readonly kind: 'told'; readonly id: number; readonly told: Told } | { readonly kind: 'ask' };
