// Sampling of the queues for the scaling loop: a bad sample tells nothing, and is counted.
import type { Clock } from '#shared/clock.ts';
import type { QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { QueueDepth, TaskQueues } from '../../stores/queues/task-queues.ts';
import type { AutoscalerMetrics } from './metrics.ts';

export interface SampleParts {
  readonly queues: Pick<TaskQueues, 'depths'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<AutoscalerMetrics, 'samples'>;
}

/** Milliseconds past which an answer is too old to use. */
const STALE_MS = 5_000;

/** Depths in the order asked; undefined: failed, partial or too old. Never throws. */
export async function sampleQueues(
  parts: SampleParts,
  queues: readonly QueueName[],
): Promise<readonly (QueueDepth | undefined)[]> {
  const { clock, metrics, log } = parts;
  const askedMs = clock.monotonicMs();
  try {
    const depths = await parts.queues.depths(queues);
    const isStale = clock.monotonicMs() - askedMs > STALE_MS;
    const checked = queues.map((_, index) => (isStale ? undefined : soundDepth(depths[index])));
    const bad = checked.filter((depth) => depth === undefined).length;
    metrics.samples.inc({ result: bad === 0 ? 'ok' : isStale ? 'stale' : 'failed' });
    if (bad > 0) log.warn({ queues: bad, isStale }, 'queue depths are no good, holding');
    return checked;
  } catch (error) {
    metrics.samples.inc({ result: 'failed' });
    log.warn({ err: error }, 'queue depths not read, holding');
    return [];
  }
}

/** Depth of a sample, unless its numbers are impossible. */
function soundDepth(depth: QueueDepth | undefined): QueueDepth | undefined {
  if (depth === undefined) return undefined;
  const counts = [depth.waiting, depth.active, depth.delayed, depth.prioritized, depth.held, depth.soon];
  return counts.every((count) => Number.isSafeInteger(count) && count >= 0) ? depth : undefined;
}
