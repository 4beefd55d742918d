// `longshore metrics`: series of what containers and machines used, as tables. Bars are drawn on a terminal only.
import { isUuid } from '#shared/domain/ids.ts';
import { durationMsOf } from '#shared/domain/duration.ts';
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import type { MetricFlags } from '../flags.ts';
import { bytesOf, coresOf, usedCoresOf } from '../format.ts';
import { listField, numberField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { formatTable, isTerminal, note, print, printJson } from '../print.ts';
import { spanMsOf } from '../since.ts';
import { shownDeployment } from './deployment-reference.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';

export async function runStubMetrics(reference: string, flags: MetricFlags, invocation: Invocation): Promise<void> {
  const range = rangeOf(flags, Date.now());
  await withClient(invocation, async (client) => {
    const read = (stubId: string): Promise<JsonObject> =>
      seriesOf(client, 'stub', { ...range, stub_id: stubId }, invocation);
    const ofDeployment = async (): Promise<JsonObject> => read((await shownDeployment(client, reference)).stubId);
    const isNoStub = (error: unknown): boolean => error instanceof CliError && error.status === 404;
    const answer = isUuid(reference)
      ? await read(reference).catch((error: unknown) => {
          if (!isNoStub(error)) throw error;
          return ofDeployment();
        })
      : await ofDeployment();
    showSeries(answer, invocation);
  });
}

export async function runWorkspaceMetrics(flags: MetricFlags, invocation: Invocation): Promise<void> {
  const filter = {
    ...(flags.kind === undefined ? {} : { stub_type: flags.kind }),
    ...(flags.app === undefined ? {} : { app_id: flags.app }),
  };
  const range = rangeOf(flags, Date.now());
  await withClient(invocation, async (client) => {
    showSeries(await seriesOf(client, 'workspace', { ...range, ...filter }, invocation), invocation);
  });
}

export async function runPoolMetrics(
  pool: string | undefined,
  flags: MetricFlags,
  invocation: Invocation,
): Promise<void> {
  const range = rangeOf(flags, Date.now(), POOL_INTERVALS);
  await withClient(invocation, async (client) => {
    const answer = await seriesOf(client, 'pool', range, invocation);
    const points = listField(answer, 'points')
      .map((point) => ({
        ...point,
        pools: listField(point, 'pools').filter((one) => pool === undefined || textField(one, 'pool_name') === pool),
      }))
      .filter(({ pools }) => pools.length > 0);
    if (invocation.options.json === true) printJson({ ...answer, points });
    else
      printSeries(
        POOL_HEADINGS,
        points.flatMap((point) => poolRows(point, isTerminal())),
      );
    if (points.length === 0 && invocation.options.json !== true) note('no samples in that time');
  });
}

const INTERVALS = ['5s', '10s', '30s', '1m', '5m', '15m', '1h', '6h', '24h'] as const;
/** Intervals of pools, which have a bound. */
const POOL_INTERVALS = ['5s', '10s', '30s', '1m', '5m', '15m', '1h', '2h'] as const;
const MOST_ROWS = 60;

/** Query of a range that ends now. @throws CliError when a flag cannot be read */
export function rangeOf(
  { since, interval }: Pick<MetricFlags, 'since' | 'interval'>,
  nowMs: number,
  intervals: readonly string[] = INTERVALS,
): Readonly<Record<'start' | 'end' | 'interval', string>> {
  const sinceMs = spanMsOf(since);
  if (sinceMs === undefined || sinceMs <= 0 || sinceMs > nowMs)
    throw usageError('--since must be a duration such as 90s, 30m, 6h or 8d');
  const fitting = intervals.find((one) => sinceMs / (durationMsOf(one) ?? 1) <= MOST_ROWS);
  return {
    start: new Date(nowMs - sinceMs).toISOString(),
    end: new Date(nowMs).toISOString(),
    interval: interval ?? fitting ?? intervals.at(-1) ?? '1h',
  };
}

async function seriesOf(
  client: Client,
  kind: 'stub' | 'workspace' | 'pool',
  query: Readonly<Record<string, string>>,
  { options }: Invocation,
): Promise<JsonObject> {
  const workspace = encodeURIComponent(await client.workspaceId());
  const answer = await client.rest(`/metrics/${workspace}/${kind}-timeseries?${new URLSearchParams(query).toString()}`);
  if (answer['truncated'] === true && options.json !== true)
    note('there are more samples than one read may look at: the oldest rows are missing. Take a longer --interval');
  return answer;
}

export const HEADINGS = [
  'TIME',
  'CONTAINERS',
  'CPU EACH',
  'MEMORY EACH',
  'GPU MEMORY EACH',
  'DISK READ/S',
  'DISK WRITTEN/S',
  'RECEIVED/S',
  'SENT/S',
];
export const POOL_HEADINGS = [
  'TIME',
  'POOL',
  'MACHINES',
  'CONTAINERS',
  'CPU',
  'MEMORY',
  'DISK',
  'GPUS FREE',
  'COST/H',
  'COST',
];

function showSeries(answer: JsonObject, { options }: Invocation): void {
  if (options.json === true) {
    printJson(answer);
    return;
  }
  const buckets = listField(objectField(answer, 'timeseries'), 'aggregation_buckets');
  printSeries(
    HEADINGS,
    buckets.map((bucket) => bucketRow(bucket, isTerminal())),
  );
  if (buckets.length === 0) note('no samples in that time');
}

/** Rows of a series are compared with each other, so they stay a table on a narrow terminal, too. */
const printSeries = (headings: readonly string[], rows: readonly (readonly string[])[]): void =>
  print(formatTable(headings, rows));

/** @param bars - draws a bar behind used shares */
export function bucketRow(bucket: JsonObject, bars: boolean): readonly string[] {
  const value = (name: string): number => numberField(objectField(bucket, name), 'value');
  const share = (used: number, total: number): string => (bars && total > 0 ? ` ${bar(used / total)}` : '');
  const used = value('memory_rss_bytes_avg');
  const limit = value('memory_total_bytes_avg');
  const gpu = value('gpu_memory_total_bytes_avg');
  const rate = (name: string): string => bytesOf(value(`${name}_bytes_per_second_avg`));
  return [
    timeOf(bucket),
    String(value('container_count')),
    `${usedCoresOf(value('cpu_used_avg'))} of ${coresOf(value('cpu_total_avg'))}${share(value('cpu_used_avg'), value('cpu_total_avg'))}`,
    `${bytesOf(used)} of ${bytesOf(limit)}${share(used, limit)}`,
    gpu > 0 ? `${bytesOf(value('gpu_memory_used_bytes_avg'))} of ${bytesOf(gpu)}` : '-',
    rate('disk_read'),
    rate('disk_write'),
    rate('network_recv'),
    rate('network_sent'),
  ];
}

/** Rows of a point; `bars` as in {@link bucketRow}. */
export function poolRows(point: JsonObject, bars: boolean): readonly (readonly string[])[] {
  return listField(point, 'pools').map((pool) => {
    const pct = (name: string): string => {
      const value = numberField(pool, name);
      return `${Math.round(value)} %${bars ? ` ${bar(value / 100)}` : ''}`;
    };
    const cost = (name: string): string => String(Math.round(numberField(pool, name) * 1e4) / 1e4);
    const gpus = numberField(pool, 'gpu_count');
    return [
      shortTime(numberField(point, 'timestamp')),
      textField(pool, 'pool_name'),
      String(numberField(pool, 'machine_count')),
      String(numberField(pool, 'container_count')),
      pct('cpu_utilization_pct'),
      pct('memory_utilization_pct'),
      pct('disk_usage_pct'),
      gpus > 0 ? `${numberField(pool, 'free_gpu_count')} of ${gpus}` : '-',
      cost('hourly_cost'),
      cost('estimated_cost'),
    ];
  });
}

const timeOf = (bucket: JsonObject): string => shortTime(numberField(bucket, 'key'));
/** RFC 3339 in UTC, without parts of a second. */
const shortTime = (ms: number): string => new Date(ms).toISOString().replace('.000', '');

const CELLS = 8;
/** A bar of eight cells; more than all of it is full. */
export function bar(share: number): string {
  const full = Math.round(Math.min(1, Math.max(0, share)) * CELLS);
  return '█'.repeat(full) + '░'.repeat(CELLS - full);
}
