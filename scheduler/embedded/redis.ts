// The scheduler's own child, when it was given no Redis; the code is shared with `longshore up`, which starts one for its scheduler.
export { startEmbeddedRedis } from '#shared/redis-child.ts';
export type { EmbeddedRedis } from '#shared/redis-child.ts';
