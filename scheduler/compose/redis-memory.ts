// The bound on Redis's memory: for an embedded Redis by a setting
// or the machine's memory, for a named one as its operator set it.
import { totalmem } from 'node:os';
import { RedisMemory } from '../stores/queues/redis-memory.ts';
import type { Infrastructure } from './infrastructure.ts';

/** Share of the machine's memory, a quarter, within bounds. */
const REDIS_SHARE = 1 / 4;
const LEAST_REDIS_BYTES = 256 * 1024 ** 2;
const MOST_REDIS_BYTES = 8 * 1024 ** 3;

/** Watches Redis's memory. A Redis of the operator keeps the operator's bound. */
export function openRedisMemory({ general, registry, log, settings }: Infrastructure): RedisMemory {
  const machineBytes = Math.min(totalmem(), process.constrainedMemory() || Infinity);
  const share = Math.min(MOST_REDIS_BYTES, Math.max(LEAST_REDIS_BYTES, Math.floor(machineBytes * REDIS_SHARE)));
  const own = settings.REDIS_URL === undefined ? { ownMaxBytes: settings.LONGSHORE_REDIS_MAX_BYTES ?? share } : {};
  return new RedisMemory({ redis: general, registry, log, ...own });
}
