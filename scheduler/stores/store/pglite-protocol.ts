// Messages between pglite.ts and its worker thread.
export interface WorkerRequest {
  readonly id: number;
  readonly kind: 'query' | 'script' | 'close';
  readonly sql: string;
  readonly params: readonly unknown[];
}

export type WorkerReply =
  | { readonly id: number; readonly kind: 'rows'; readonly rows: unknown[]; readonly rowCount: number }
  | {
      readonly id: number;
      readonly kind: 'error';
      readonly message: string;
      readonly code: string | undefined;
      readonly constraint: string | undefined;
    };

/** Id of the reply that reports the database as open. */
export const OPENED = 0;
