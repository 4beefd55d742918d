// `inference`: streams of a server that writes tokens by a timer, called directly, through /v1, and through LiteLLM's
// proxy. All three are measured in turn in each round, with the same client on the same cores.
import { startLitellm } from '../baselines/litellm.ts';
import { ControlPlane } from '../control-plane.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import { percentile } from '../stats.ts';
import { TokenStreams } from '../token-streams.ts';
import type { ChatTarget } from '../token-streams.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

/** The pace of the server: 32 streams have 1600 tokens a second. */
const PACE = { tokens: 64, firstMs: 20, pauseMs: 20 } as const;
const STREAMS = 32;
const SIZES = { full: { alone: 40, times: 5 }, quick: { alone: 10, times: 2 } } as const;
const WARM_UP = 5;
const MODEL = 'paced';

export async function inference(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const sizes = context.isQuick ? SIZES.quick : SIZES.full;
  const server = place.start({
    name: 'token-server',
    file: 'bench/baselines/token-server.ts',
    args: [PACE.tokens, PACE.firstMs, PACE.pauseMs].map(String),
    env: place.env,
  });
  const { port } = await server.ready();
  const direct = { url: `http://127.0.0.1:${String(port)}/v1`, model: MODEL, token: 'none' };
  const ours = await startOurs(context, direct.url);
  const proxy = await startLitellm(place, direct.url);
  for (const target of [direct, ours, proxy]) await withStreams(target, (streams) => inARow(streams, WARM_UP));

  const measured = async (target: ChatTarget): Promise<Figures> => {
    place.signal.throwIfAborted();
    return withStreams(target, async (streams) => {
      const took = await inARow(streams, sizes.alone);
      return {
        'first token p50': percentile(took, 50),
        'first token p99': percentile(took, 99),
        rate: await sideBySide(streams, sizes.times),
      };
    });
  };
  const rounds = await context.runRounds(
    'inference',
    inTurn(
      async () => ({ ...(await measured(direct)), ...asProxy(await measured(proxy)) }),
      async () => {
        const figures = await measured(ours);
        return { ...figures, ...asProxy(figures) };
      },
    ),
  );
  const measures = [
    ...['first token p50', 'first token p99'].map((name) => measureOf('inference', name, 'ms', rounds, slack)),
    measureOf('inference', 'rate', 'tokens/s', rounds, slack),
    measureOf('inference', 'first token p50 to proxy', 'ms', rounds, slack),
    measureOf('inference', 'rate to proxy', 'tokens/s', rounds, slack),
  ];
  return { measures, rounds };
}

/** Figures under the names by which both sides are compared with the proxy. */
const asProxy = (figures: Figures): Figures =>
  Object.fromEntries(Object.entries(figures).map(([name, figure]) => [`${name} to proxy`, figure]));

/** A scheduler with the server as an external backend. */
async function startOurs({ place, postgres }: SuiteContext, baseUrl: string): Promise<ChatTarget> {
  const settings = { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' };
  const plane = await ControlPlane.start(place, await postgres(), 'inference', settings);
  const { url, token, workspaceId } = plane.client.context;
  await plane.client.restCall('POST', `/model/${workspaceId ?? ''}`, {
    id: MODEL,
    type: 'chat',
    backends: [{ kind: 'external', base_url: baseUrl }],
  });
  return { url: `${url}/v1`, model: MODEL, token: token ?? '' };
}

async function withStreams<T>(target: ChatTarget, work: (streams: TokenStreams) => Promise<T>): Promise<T> {
  const streams = new TokenStreams(target, PACE.tokens);
  try {
    return await work(streams);
  } finally {
    streams.close();
  }
}

async function inARow(streams: TokenStreams, count: number): Promise<readonly number[]> {
  const took: number[] = [];
  while (took.length < count) took.push(await streams.read());
  return took;
}

/** Tokens a second of all streams together. */
async function sideBySide(streams: TokenStreams, times: number): Promise<number> {
  const startedMs = performance.now();
  await Promise.all(Array.from({ length: STREAMS }, () => inARow(streams, times)));
  return (STREAMS * times * PACE.tokens * 1000) / (performance.now() - startedMs);
}
