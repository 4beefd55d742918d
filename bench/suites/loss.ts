// `loss` (G9): the time until the loss of a machine shows, its agent killed or standing still. Measured alone, and
// while code archives flow to the machine at 20 MB/s. Docker Swarm stands beside it, and its node goes the same way in
// the same round. All machines are network namespaces with an engine each. The suite does not wait until the machine is
// given up: the failure table's tests cover that.
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from '#cli/client.ts';
import { packFiles } from '#cli/deploy/archive.ts';
import { uploadArchive } from '#cli/deploy/upload.ts';
import { collectFiles } from '#cli/deploy/files.ts';
import { sleep } from '#shared/backoff.ts';
import type { SimulatedHost } from '../../test/helpers/hosts/host.ts';
import { SimulatedNetwork } from '../../test/helpers/hosts/network.ts';
import { runProgram, waitFor } from '../../test/helpers/programs.ts';
import type { BenchChild } from '../child.ts';
import { measureOf } from '../measure.ts';
import type { Figures } from '../measure.ts';
import { startScheduler } from '../product.ts';
import type { Workplace } from '../workplace.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const WAIT_MS = 60_000;
const LOOK_EVERY_MS = 5;
/** Time in which a task would be given out if it could be. */
const WAITS_MS = 500;
/** The cable lets 20 MB/s through. */
const CABLE = ['rate', '160mbit', 'burst', '256kb', 'latency', '400ms'];
/** The archive takes ten seconds on that cable. */
const ARCHIVE_BYTES = 200 * 1024 ** 2;
/** Bytes after which the archive counts as flowing. */
const FLOWS_BYTES = 10 * 1024 ** 2;
const WAYS = ['killed', 'frozen'] as const;
type Way = (typeof WAYS)[number];

export async function loss(context: SuiteContext): Promise<SuiteResult> {
  const { place } = context;
  const { reference } = await place.engine.baseImage();
  const network = await SimulatedNetwork.up(3, reference);
  place.later(() => network.down());
  const [manager, node, host] = network.hosts;
  if (manager === undefined || node === undefined || host === undefined) throw new Error('there are no hosts');
  const swarm = await Swarm.start(manager, node);
  const machine = await Machine.start(place, network.gateway, host);
  const rounds = await context.runRounds('loss', async (isBaselineFirst) => {
    const baseline = isBaselineFirst ? await swarm.losses() : undefined;
    const product = await machine.losses();
    return { baseline: baseline ?? (await swarm.losses()), product };
  });
  const { slack } = context;
  return {
    measures: WAYS.flatMap((way) =>
      [way, `${way} busy`, `${way} to swarm`].map((name) => measureOf('loss', name, 'ms', rounds, slack)),
    ),
    rounds,
    checks: [
      {
        suite: 'loss',
        name: 'nothing was dispatched to a machine that was noticed',
        isRight: machine.dispatched === 0,
        text: `${machine.asked} tasks put after the notice, ${machine.dispatched} of them given out before it was back`,
      },
    ],
  };
}

const busyName = (way: Way): string => `${way} busy`;

/** The baseline has one figure for each way of loss, because it carries no archives. */
function asBaseline(took: Readonly<Record<Way, number>>): Figures {
  return Object.fromEntries(
    WAYS.flatMap((way) => [way, busyName(way), `${way} to swarm`].map((name) => [name, took[way]])),
  );
}

class Swarm {
  readonly #manager: SimulatedHost;
  readonly #node: SimulatedHost;

  private constructor(manager: SimulatedHost, node: SimulatedHost) {
    this.#manager = manager;
    this.#node = node;
  }

  static async start(manager: SimulatedHost, node: SimulatedHost): Promise<Swarm> {
    await manager.docker.swarmInit({ AdvertiseAddr: manager.address, ListenAddr: `${manager.address}:2377` });
    const { JoinTokens } = (await manager.docker.swarmInspect()) as { JoinTokens: { Worker: string } };
    const join = { AdvertiseAddr: node.address, ListenAddr: `${node.address}:2377` };
    const call = { ...join, RemoteAddrs: [`${manager.address}:2377`], JoinToken: JoinTokens.Worker };
    await (node.docker as unknown as { swarmJoin(options: object): Promise<unknown> }).swarmJoin(call);
    const swarm = new Swarm(manager, node);
    await swarm.#is('ready');
    return swarm;
  }

  async losses(): Promise<Figures> {
    const killed = await this.#loss(() => this.#node.killEngine());
    await this.#node.startEngine();
    await this.#is('ready');
    const frozen = await this.#loss(() => Promise.resolve(this.#node.freezeEngine()));
    this.#node.thawEngine();
    await this.#is('ready');
    return asBaseline({ killed, frozen });
  }

  async #loss(happens: () => Promise<void>): Promise<number> {
    const fromMs = performance.now();
    await happens();
    await this.#is('down');
    return performance.now() - fromMs;
  }

  async #is(state: string): Promise<void> {
    const looks = async (): Promise<boolean> => {
      const nodes = (await this.#manager.docker.listNodes()) as unknown as {
        Spec: { Role: string };
        Status: { State: string };
      }[];
      return nodes.some(({ Spec, Status }) => Spec.Role === 'worker' && Status.State === state);
    };
    await waitFor(looks, `the swarm's node is ${state}`, WAIT_MS);
  }
}

/** A scheduler, and one machine that joined it. */
class Machine {
  asked = 0;
  dispatched = 0;
  readonly #place: Workplace;
  readonly #host: SimulatedHost;
  readonly #client: Client;
  readonly #startAgent: (joinToken?: string) => BenchChild;
  #agent: BenchChild;
  #flows = 0;
  #url = '';

  private constructor(
    place: Workplace,
    host: SimulatedHost,
    client: Client,
    startAgent: (joinToken?: string) => BenchChild,
    agent: BenchChild,
  ) {
    this.#place = place;
    this.#host = host;
    this.#client = client;
    this.#startAgent = startAgent;
    this.#agent = agent;
  }

  static async start(place: Workplace, gateway: string, host: SimulatedHost): Promise<Machine> {
    const scheduler = startScheduler(place, {
      ...place.env,
      LONGSHORE_DATA_DIR: join(place.directory, 'l'),
      LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0',
      LONGSHORE_RATE_LIMITS: 'off',
      LONGSHORE_AGENT_ADDRESS: `${gateway}:0`,
    });
    const ready = await scheduler.ready();
    const first = await scheduler.request({ kind: 'ensureFirstWorkspace' });
    const url = `http://${String(ready['httpAddress'])}`;
    const client = new Client({ url, token: String(first['token']), workspaceId: String(first['workspaceId']) });
    place.later(() => client.close());
    const made = await client.gateway('POST', '/machines', { poolName: 'default' });
    const { template } = await place.engine.baseImage();
    const startAgent = (joinToken?: string): BenchChild =>
      place.start({
        name: 'agent',
        file: 'cli/main.ts',
        args: ['agent'],
        enter: host.enter,
        env: {
          ...place.env,
          ...host.agentEnv,
          LONGSHORE_SCHEDULER_ADDRESS: String(ready['agentAddress']),
          LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0',
          LONGSHORE_BASE_IMAGE: template,
          ...(joinToken === undefined ? {} : { LONGSHORE_JOIN_TOKEN: joinToken }),
        },
      });
    const agent = startAgent(String(made['agentUpstreamToken']));
    await agent.ready();
    const machine = new Machine(place, host, client, startAgent, agent);
    await machine.#is(true);
    await machine.#warm();
    return machine;
  }

  async losses(): Promise<Figures> {
    const took: Record<string, number> = {};
    for (const way of WAYS) {
      this.#place.signal.throwIfAborted();
      took[way] = await this.#loss(way);
      took[`${way} to swarm`] = took[way];
      await runProgram('tc', ['qdisc', 'add', 'dev', this.#host.cable, 'root', 'tbf', ...CABLE]);
      const flow = await this.#letFlow();
      took[busyName(way)] = await this.#loss(way);
      await runProgram('tc', ['qdisc', 'del', 'dev', this.#host.cable, 'root']);
      await this.#client.gateway('POST', `/deployments/${flow}/stop`, {});
    }
    return took;
  }

  /** Time until the loss is noticed. A task for the warm container must then wait until the machine is back. */
  async #loss(way: Way): Promise<number> {
    const fromMs = performance.now();
    process.kill(this.#agent.pid, way === 'killed' ? 'SIGKILL' : 'SIGSTOP');
    await this.#is(false);
    const tookMs = performance.now() - fromMs;
    const task = await this.#ask();
    await sleep(WAITS_MS, this.#place.signal);
    if ((await this.#statusOf(task)) !== 'PENDING') this.dispatched += 1;
    if (way === 'killed') {
      await this.#agent.stop();
      this.#agent = this.#startAgent();
      await this.#agent.ready();
    } else process.kill(this.#agent.pid, 'SIGCONT');
    await this.#is(true);
    await waitFor(async () => (await this.#statusOf(task)) === 'COMPLETE', 'the task that waited is done', WAIT_MS);
    return tookMs;
  }

  /** A queue with a container that stays. */
  async #warm(): Promise<void> {
    const found = await collectFiles(fileURLToPath(new URL('../apps/kept', import.meta.url)));
    const archive = await packFiles(found);
    const objectId = await uploadArchive(this.#client, archive, () => undefined);
    await archive.remove();
    this.#url = (await this.#deploy('warm', objectId, { keepWarmSeconds: 3600 })).url;
    const first = await this.#ask();
    await waitFor(async () => (await this.#statusOf(first)) === 'COMPLETE', 'the first task is done', WAIT_MS);
  }

  async #deploy(
    name: string,
    objectId: string,
    fields: Readonly<Record<string, number>>,
  ): Promise<{ readonly url: string; readonly deploymentId: string }> {
    const recipe = { objectId, name, stubType: 'taskqueue/deployment', handler: 'app:handler', cpu: 250, memory: 128 };
    const stub = await this.#client.gateway('POST', '/stubs', { ...recipe, ...fields });
    const made = await this.#client.gateway('POST', '/stubs/deploy', { stubId: stub['stubId'] ?? '', name });
    return { url: String(made['invokeUrl']), deploymentId: String(made['deploymentId']) };
  }

  async #ask(): Promise<string> {
    this.asked += 1;
    const { pathname } = new URL(this.#url);
    const answer = await this.#client.call(pathname, { method: 'POST', body: '{}' });
    return (JSON.parse(answer.body.toString()) as { task_id: string }).task_id;
  }

  async #statusOf(taskId: string): Promise<string> {
    const task = await this.#client.rest(`/task/${await this.#client.workspaceId()}/${taskId}`);
    return String(task['status']);
  }

  /** Starts a container whose code takes ten seconds to come, and waits until it comes. @returns its deployment */
  async #letFlow(): Promise<string> {
    this.#flows += 1;
    const path = join(this.#place.directory, 'weights', 'weights.bin');
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, randomBytes(ARCHIVE_BYTES));
    const archive = await packFiles(await collectFiles(dirname(path)));
    const objectId = await uploadArchive(this.#client, archive, () => undefined);
    await archive.remove();
    const { url, deploymentId } = await this.#deploy(`flow-${this.#flows}`, objectId, {});
    const before = this.#sentBytes();
    await this.#client.call(new URL(url).pathname, { method: 'POST', body: '{}' });
    await waitFor(() => this.#sentBytes() - before > FLOWS_BYTES, 'the archive flows', WAIT_MS);
    return deploymentId;
  }

  /** Bytes that have gone out to the machine. The table is that of our network namespace, unlike the files of /sys. */
  #sentBytes(): number {
    const line = readFileSync('/proc/self/net/dev', 'utf8')
      .split('\n')
      .find((one) => one.trim().startsWith(`${this.#host.cable}:`));
    const sent = line?.split(':')[1]?.trim().split(/\s+/)[8];
    if (sent === undefined) throw new Error(`there is no device ${this.#host.cable}`);
    return Number(sent);
  }

  async #is(available: boolean): Promise<void> {
    const deadlineMs = performance.now() + WAIT_MS;
    for (;;) {
      const { workers } = (await this.#client.gateway('GET', '/workers')) as unknown as {
        workers: readonly { status: string }[];
      };
      if (workers.some(({ status }) => status === 'available') === available) return;
      if (performance.now() > deadlineMs) throw new Error(`the machine is not ${available ? 'there' : 'gone'} yet`);
      await sleep(LOOK_EVERY_MS, this.#place.signal);
    }
  }
}
