// Load on one URL: N connections, each with one request at a time, for a duration or a count. Latencies are taken per
// answer, because the generator's own histogram counts whole milliseconds and a warm call takes about one.
import autocannon from 'autocannon';
import type { Figures } from './measure.ts';
import { percentile } from './stats.ts';

export interface LoadTarget {
  readonly url: string;
  /** Method; POST by default. */
  readonly method?: 'GET';
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Body that every answer must have. */
  readonly expected: string;
}

export interface LoadResult {
  /** `p50` and `p99` in milliseconds, `rate` in answers per second. */
  readonly figures: Figures;
  readonly answered: number;
  readonly sent: number;
}

const ANSWER_TIMEOUT_S = 30;

export type Extent = { readonly seconds: number } | { readonly requests: number };

/** @throws Error when an answer is wrong, an error, or missing */
export async function load(target: LoadTarget, connections: number, extent: Extent): Promise<LoadResult> {
  const latencies: number[] = [];
  const startedMs = performance.now();
  let lastMs = startedMs;
  const result = await new Promise<autocannon.Result>((resolve, reject) => {
    const run = autocannon(
      {
        url: target.url,
        method: target.method ?? 'POST',
        headers: { 'content-type': 'application/json', ...target.headers },
        ...(target.body === undefined ? {} : { body: target.body }),
        connections,
        ...('seconds' in extent ? { duration: extent.seconds } : { amount: extent.requests }),
        timeout: ANSWER_TIMEOUT_S,
        verifyBody: (body) => String(body) === target.expected,
      },
      (error: unknown, done) => (error instanceof Error ? reject(error) : resolve(done)),
    );
    run.on('response', (_client, _status, _bytes, responseTime) => {
      latencies.push(responseTime);
      lastMs = performance.now();
    });
  });
  const wrong = result.non2xx + result.mismatches + result.errors + result.timeouts;
  if (wrong > 0 || latencies.length === 0) {
    throw new Error(
      `${target.url}: of ${result.requests.sent} requests ${latencies.length} were answered, ${result.non2xx} not with 2xx, ` +
        `${result.mismatches} with something else than ${target.expected}, ${result.errors} failed, ${result.timeouts} timed out`,
    );
  }
  return {
    figures: {
      p50: percentile(latencies, 50),
      p99: percentile(latencies, 99),
      rate: latencies.length / ((lastMs - startedMs) / 1000),
    },
    answered: latencies.length,
    sent: result.requests.sent,
  };
}
