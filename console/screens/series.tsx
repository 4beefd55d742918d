// Use of a deployment's containers over time, beside what they asked for.
import { useState } from 'preact/hooks';
import type { MetricBucket, MetricSeries } from '#shared/api/rest/metrics.ts';
import { queryOf, rest } from '../api/client.ts';
import { useResource } from '../live/resource.ts';
import { bytesOf } from '../parts/bytes.ts';
import { Chart } from '../parts/chart.tsx';
import { Shown, Twin } from '../parts/notices.tsx';
import { word } from '../parts/word.ts';

const EVERY_MS = 30_000;
const MINUTE_MS = 60_000;
/** Ranges by their names: how long they are, and the width of a bucket. */
const RANGES = {
  hour: { ms: 60 * MINUTE_MS, interval: '1m', stepMs: MINUTE_MS },
  day: { ms: 24 * 60 * MINUTE_MS, interval: '15m', stepMs: 15 * MINUTE_MS },
  week: { ms: 7 * 24 * 60 * MINUTE_MS, interval: '2h', stepMs: 120 * MINUTE_MS },
} as const;
type Range = keyof typeof RANGES;

export function Series({
  workspaceId,
  stubId,
  name,
}: {
  readonly workspaceId: string;
  readonly stubId: string;
  readonly name: string;
}) {
  const [range, setRange] = useState<Range>('hour');
  const { ms, interval, stepMs } = RANGES[range];
  const series = useResource(
    `series ${workspaceId} ${stubId} ${range}`,
    (signal) => {
      const end = (Math.floor(Date.now() / stepMs) + 1) * stepMs;
      const query = {
        stub_id: stubId,
        start: new Date(end - ms).toISOString(),
        end: new Date(end).toISOString(),
        interval,
      };
      return rest<MetricSeries>(`/metrics/${workspaceId}/stub-timeseries${queryOf(query)}`, { signal });
    },
    EVERY_MS,
  );
  return (
    <>
      <p class="filters" role="group" aria-label="The last">
        {(Object.keys(RANGES) as Range[]).map((one) => (
          <button key={one} type="button" aria-pressed={one === range} onClick={() => setRange(one)}>
            {one}
          </button>
        ))}
      </p>
      <Shown of={series}>{({ timeseries }) => <Charts buckets={timeseries.aggregation_buckets} />}</Shown>
      <Twin line={`longshore metrics stub ${word(name)}`} />
    </>
  );
}

function Charts({ buckets }: { readonly buckets: readonly MetricBucket[] }) {
  if (!buckets.some(({ doc_count: count }) => count > 0))
    return <p>No container of it ran in that time, or none has told what it uses yet.</p>;
  const times = buckets.map(({ key_as_string: time }) => time);
  const values = (of: (bucket: MetricBucket) => number) =>
    buckets.map((bucket) => (bucket.doc_count === 0 ? null : of(bucket)));
  const hasGpu = buckets.some((bucket) => bucket.gpu_memory_total_bytes_avg.value > 0);
  const cores = (millicores: number): string => (millicores / 1000).toFixed(2);
  return (
    <>
      <Chart
        title="CPU cores"
        times={times}
        shown={cores}
        lines={[
          { title: 'used', values: values((bucket) => bucket.cpu_used_avg.value) },
          { title: 'asked for', values: values((bucket) => bucket.cpu_total_avg.value), isBound: true },
        ]}
      />
      <Chart
        title="Memory"
        times={times}
        shown={bytesOf}
        lines={[
          { title: 'used', values: values((bucket) => bucket.memory_rss_bytes_avg.value) },
          { title: 'limit', values: values((bucket) => bucket.memory_total_bytes_avg.value), isBound: true },
        ]}
      />
      {hasGpu ? (
        <Chart
          title="GPU memory"
          times={times}
          shown={bytesOf}
          lines={[
            { title: 'used', values: values((bucket) => bucket.gpu_memory_used_bytes_avg.value) },
            { title: 'there', values: values((bucket) => bucket.gpu_memory_total_bytes_avg.value), isBound: true },
          ]}
        />
      ) : null}
      <Chart
        title="Containers"
        times={times}
        shown={String}
        lines={[{ title: 'running', values: values((bucket) => bucket.container_count.value) }]}
      />
    </>
  );
}
