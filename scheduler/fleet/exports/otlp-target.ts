// Records to a collector, by OTLP over HTTP. The package encodes and sends, and tries again for a while by itself.
import type { ReadableLogRecord } from '@opentelemetry/sdk-logs';
import { messageOf } from '#shared/errors.ts';
import type { ExportRecord, ExportTarget } from './exporter.ts';

export interface OtlpSettings {
  /** Address of the collector; `/v1/logs` is added unless the path ends so. */
  readonly endpoint: string;
  /** `name=value` pairs, parted by commas, such as a credential. */
  readonly headers: string;
}

const TIMEOUT_MS = 10_000;
/** Attributes of a record: each scalar field but the text, the times, and copies of others. */
const NO_ATTRIBUTE = new Set([
  'message',
  'timestamp',
  'stored_at_ns',
  'data',
  'cloud_event',
  'type',
  'stream',
  'attrs',
]);

export async function otlpTarget({ endpoint, headers }: OtlpSettings): Promise<ExportTarget> {
  const [{ OTLPLogExporter }, { resourceFromAttributes }] = await Promise.all([
    import('@opentelemetry/exporter-logs-otlp-http'),
    import('@opentelemetry/resources'),
  ]);
  const exporter = new OTLPLogExporter({
    url: logsUrl(endpoint),
    headers: headersOf(headers),
    timeoutMillis: TIMEOUT_MS,
    concurrencyLimit: 1,
  });
  const resource = resourceFromAttributes({ 'service.name': 'longshore' });
  const scopes = { events: { name: 'longshore.events' }, logs: { name: 'longshore.logs' } } as const;
  const encode = ({ kind, atMs, storedAtMs, record }: ExportRecord): ReadableLogRecord => ({
    hrTime: hrTimeOf(atMs),
    hrTimeObserved: hrTimeOf(storedAtMs),
    body: kind === 'logs' ? textOf(record['message']) : JSON.stringify(record['data'] ?? {}),
    ...(kind === 'events' ? { eventName: textOf(record['type']) } : {}),
    resource,
    instrumentationScope: scopes[kind],
    attributes: attributesOf(record),
    droppedAttributesCount: 0,
  });
  return {
    name: 'otlp',
    send: (records, signal) =>
      new Promise<void>((resolve, reject) => {
        const abandon = (): void => reject(new Error('the scheduler stops'));
        signal.addEventListener('abort', abandon, { once: true });
        exporter.export(records.map(encode), ({ code, error }) => {
          signal.removeEventListener('abort', abandon);
          if (code === 0) resolve();
          else
            reject(
              new Error(`the collector did not take ${records.length} records: ${messageOf(error)}`, { cause: error }),
            );
        });
      }),
    close: () => exporter.shutdown(),
  };
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

export function logsUrl(endpoint: string): string {
  const url = new URL(endpoint);
  if (!url.pathname.endsWith('/v1/logs')) url.pathname = `${url.pathname.replace(/\/$/, '')}/v1/logs`;
  return url.href;
}

/** Headers of a text such as `authorization=Bearer x,tenant=a`. */
export function headersOf(text: string): Readonly<Record<string, string>> {
  const pairs = text
    .split(',')
    .map((pair) => pair.trim())
    .filter((pair) => pair !== '');
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf('=');
      return [pair.slice(0, at).trim().toLowerCase(), pair.slice(at + 1).trim()];
    }),
  );
}

const hrTimeOf = (ms: number): [number, number] => [Math.floor(ms / 1000), Math.round((ms % 1000) * 1e6)];

function attributesOf(record: Readonly<Record<string, unknown>>): Record<string, string | number | boolean> {
  const attributes: Record<string, string | number | boolean> = {};
  for (const [name, value] of Object.entries(record)) {
    if (NO_ATTRIBUTE.has(name)) continue;
    if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
      attributes[`longshore.${name}`] = value;
  }
  if (typeof record['stream'] === 'string') attributes['log.iostream'] = record['stream'];
  return attributes;
}
