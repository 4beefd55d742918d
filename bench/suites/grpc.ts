// `grpc`: the port of published clients. Processor time of a call, beside the same operation over HTTP. And the p95 of
// a client's calls beside a thousand silent connections, half messages and headers beyond the bound, and without them.
import { sleep } from '#shared/backoff.ts';
import { GrpcClient } from '../../test/helpers/grpc-client.ts';
import { ControlPlane } from '../control-plane.ts';
import { load } from '../load.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import { percentile } from '../stats.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const DEPLOYMENTS = 20;
const FULL_SECONDS = 4;
const QUICK_SECONDS = 2;
const WARM_UP_SECONDS = 1;
/** Calls of the neighbour: far from what the scheduler can do, so that the strangers alone make the difference. */
const PACED_MS = 10;
const GATEWAY = 'gateway.GatewayService';
/** Operations by their figure: the path of HTTP, and the call. */
const UNARY = {
  list: ['/api/v1/gateway/deployments', `${GATEWAY}/ListDeployments`],
  config: ['/api/v1/gateway/workspace/config', `${GATEWAY}/ExportWorkspaceConfig`],
} as const;

export async function grpc(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const seconds = context.isQuick ? QUICK_SECONDS : FULL_SECONDS;
  const settings = { LONGSHORE_GRPC_ADDRESS: '127.0.0.1:0' };
  const plane = await ControlPlane.start(place, await context.postgres(), 'grpc', settings);
  await plane.deploy(DEPLOYMENTS, 'listed');
  const { url, token } = plane.client.context;
  const config = await plane.client.gateway('GET', '/workspace/config');
  const address = `127.0.0.1:${String(config['gatewayGrpcPort'])}`;
  const client = new GrpcClient(address);
  place.later(async () => client.close());
  const neighbour = await plane.workspace('neighbour');

  /** Microseconds of the scheduler's processor time for each call of every operation. */
  const costs = async (run: (name: keyof typeof UNARY, runSeconds: number) => Promise<number>): Promise<Figures> => {
    const figures: Record<string, number> = {};
    for (const name of Object.keys(UNARY) as (keyof typeof UNARY)[]) {
      place.signal.throwIfAborted();
      await run(name, WARM_UP_SECONDS);
      const beforeMs = plane.cpuMs();
      const answered = await run(name, seconds);
      figures[name] = ((plane.cpuMs() - beforeMs) / answered) * 1000;
    }
    return figures;
  };
  const overHttp = async (name: keyof typeof UNARY, runSeconds: number): Promise<number> => {
    const target = `${url}${UNARY[name][0]}`;
    const headers = { authorization: `Bearer ${token}` };
    const expected = await (await fetch(target, { headers })).text();
    return (await load({ method: 'GET', url: target, headers, expected }, 1, { seconds: runSeconds })).answered;
  };
  const overGrpc = async (name: keyof typeof UNARY, runSeconds: number): Promise<number> =>
    (await called(client, UNARY[name][1], token, { seconds: runSeconds, everyMs: 0 })).length;

  const p95Of = async (): Promise<number> => {
    const how = { seconds, everyMs: PACED_MS };
    await called(client, UNARY.list[1], neighbour.context.token, { ...how, seconds: WARM_UP_SECONDS });
    return percentile(await called(client, UNARY.list[1], neighbour.context.token, how), 95);
  };
  const besideStrangers = async (): Promise<number> => {
    const strangers = place.start({
      name: 'strangers',
      file: 'bench/grpc-strangers.ts',
      args: [address, token],
      env: place.env,
    });
    await strangers.ready();
    try {
      return await p95Of();
    } finally {
      await strangers.stop();
    }
  };
  const rounds = await context.runRounds(
    'grpc',
    inTurn(
      async () => ({ ...(await costs(overHttp)), 'beside strangers': await p95Of() }),
      async () => ({ ...(await costs(overGrpc)), 'beside strangers': await besideStrangers() }),
    ),
  );
  return {
    measures: [
      ...Object.keys(UNARY).map((name) => measureOf('grpc', name, 'us', rounds, slack)),
      measureOf('grpc', 'beside strangers', 'ms', rounds, slack),
    ],
    rounds,
  };
}

/** Makes calls, one at a time. @returns the milliseconds of each */
async function called(
  client: GrpcClient,
  path: string,
  token: string,
  { seconds, everyMs }: { readonly seconds: number; readonly everyMs: number },
): Promise<readonly number[]> {
  const took: number[] = [];
  const untilMs = performance.now() + seconds * 1000;
  for (let fromMs = performance.now(); fromMs < untilMs; fromMs = performance.now()) {
    const { code, details, answer } = await client.call(path, {}, { token });
    if (code !== 0 || answer?.['ok'] === false) throw new Error(`${path} was answered ${code} ${details}`);
    const ms = performance.now() - fromMs;
    took.push(ms);
    if (everyMs > ms) await sleep(everyMs - ms);
  }
  return took;
}
