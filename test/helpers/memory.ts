/** Memory of this process, measured so that growth can be told from garbage. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

export interface Held {
  /** Number of requests before the reading. */
  readonly sent: number;
  /** Heap of the main thread, after a full collection. */
  readonly heapBytes: number;
  /** Buffers and the like beside the heap. */
  readonly outsideBytes: number;
  /** Memory of the whole process, including worker threads and the allocator's reserves. */
  readonly rssBytes: number;
}

/** Collects first, every time. */
export function memoryReader(): (sent: number) => Held {
  // The flag is set at run time, because the runner starts threads of its own and takes no flags.
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  return (sent) => {
    collect();
    const { heapUsed, external, rss } = process.memoryUsage();
    return { sent, heapBytes: heapUsed, outsideBytes: external, rssBytes: rss };
  };
}

/** Growth over the samples along a regression line, because single peaks say little. */
export function growthOf(samples: readonly Held[], read: (held: Held) => number): number {
  const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  const at = mean(samples.map(({ sent }) => sent));
  const middle = mean(samples.map(read));
  const above = samples.map((held) => (held.sent - at) * (read(held) - middle)).reduce((sum, part) => sum + part, 0);
  const below = samples.map(({ sent }) => (sent - at) ** 2).reduce((sum, part) => sum + part, 0);
  const from = samples[0]?.sent ?? 0;
  return below === 0 ? 0 : (above / below) * ((samples.at(-1)?.sent ?? from) - from);
}

export const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
