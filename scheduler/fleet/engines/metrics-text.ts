// Reads the metrics page of an engine that serves models: vLLM's and SGLang's, in Prometheus text. Pure.
// Source: documentation of vLLM (design/metrics) and SGLang (references/production_metrics), 2026-11; decision 0253.

export interface EngineMetrics {
  /** Requests that the engine works on. */
  readonly running: number;
  /** Requests that wait inside the engine. */
  readonly waiting: number;
  /** Share of the cache that is used, from 0 to 1; undefined: not told. */
  readonly cacheUse: number | undefined;
}

type Meaning = 'running' | 'waiting' | 'cacheUse';

const MEANINGS: ReadonlyMap<string, Meaning> = new Map([
  ['vllm:num_requests_running', 'running'],
  ['vllm:num_requests_waiting', 'waiting'],
  ['vllm:kv_cache_usage_perc', 'cacheUse'],
  // Name of versions before 0.10.
  ['vllm:gpu_cache_usage_perc', 'cacheUse'],
  ['sglang:num_running_reqs', 'running'],
  ['sglang:num_queue_reqs', 'waiting'],
  ['sglang:token_usage', 'cacheUse'],
]);
const SAMPLE = /^([A-Za-z_:][\w:]*)(\{.*\})?[ \t]+(\S+)/;
/** Ranks of one model: each tells the same requests. Ranks of data parallelism tell their own. */
const OTHER_RANK = /[{,]\s*(?:tp_rank|pp_rank)="(?!0")/;

/** @returns undefined: the page does not tell how many requests run and wait */
export function engineMetricsOf(text: string): EngineMetrics | undefined {
  let running: number | undefined;
  let waiting: number | undefined;
  let cacheUse: number | undefined;
  for (const line of text.split('\n')) {
    if (!line.startsWith('vllm:') && !line.startsWith('sglang:')) continue;
    const [, name = '', labels = '', digits = ''] = SAMPLE.exec(line) ?? [];
    const meaning = MEANINGS.get(name);
    if (meaning === undefined || OTHER_RANK.test(labels)) continue;
    const value = Number(digits);
    if (!Number.isFinite(value) || value < 0) continue;
    if (meaning === 'running') running = (running ?? 0) + value;
    else if (meaning === 'waiting') waiting = (waiting ?? 0) + value;
    else cacheUse = Math.max(cacheUse ?? 0, Math.min(value, 1));
  }
  return running === undefined || waiting === undefined ? undefined : { running, waiting, cacheUse };
}

/** Body of a successful HTTP answer that ended with its connection; undefined: it is none. */
export function bodyOfAnswer(answer: Buffer): string | undefined {
  const end = answer.indexOf('\r\n\r\n');
  if (end === -1) return undefined;
  const head = answer.subarray(0, end).toString('latin1');
  // The request is of HTTP/1.0, which has no chunks.
  if (!/^HTTP\/1\.[01] 200\b/.test(head) || /\r\ntransfer-encoding:/i.test(head)) return undefined;
  return answer.subarray(end + 4).toString('utf8');
}
