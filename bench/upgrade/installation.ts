// An installation whose daemons are replaced by those of another release, one at a time and on the same data: a
// scheduler, and machines whose agents dial it. The first agent uses the socket beside the scheduler, the others TLS.
import { join } from 'node:path';
import { Client } from '#cli/client.ts';
import { linkSocket } from '#cli/up/settings.ts';
import type { GpuHost } from '../chaos/machine.ts';
import type { BenchChild } from '../child.ts';
import { machineIdIn, startScheduler, text } from '../product.ts';
import type { Release } from '../release.ts';
import { freePort } from '../workplace.ts';
import type { Workplace } from '../workplace.ts';

/** As the units have it: TimeoutStopSec. */
const SCHEDULER_STOPS_MS = 150_000;
const AGENT_STOPS_MS = 90_000;
const CONTAINERS_LEAVE_MS = 30_000;

export interface Machine {
  readonly machineId: string;
  readonly network: string;
  /** Journal in the agent's state directory. */
  readonly journalPath: string;
  readonly engine: GpuHost['engine'];
}

/** Duration of a replacement: from the signal to the end, and from there until the next daemon is ready. */
export interface Replaced {
  readonly endedMs: number;
  readonly readyMs: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

interface Away {
  readonly fromMs: number;
  untilMs: number;
}

interface Agent extends Machine {
  readonly start: (release: Release) => BenchChild;
  child: BenchChild;
}

export class Installation {
  readonly dataDir: string;
  readonly client: Client;
  /** Directory of `shared` volumes, one for all machines. */
  readonly volumesDir: string;
  readonly #place: Workplace;
  readonly #env: Environment;
  readonly #agents: readonly Agent[];
  readonly #away: Away[] = [];
  #scheduler: BenchChild;
  #stopped: Promise<void> | undefined;

  private constructor(
    place: Workplace,
    parts: Pick<Installation, 'dataDir' | 'client' | 'volumesDir'>,
    daemons: { readonly env: Environment; readonly scheduler: BenchChild; readonly agents: readonly Agent[] },
  ) {
    this.#place = place;
    this.dataDir = parts.dataDir;
    this.client = parts.client;
    this.volumesDir = parts.volumesDir;
    this.#env = daemons.env;
    this.#scheduler = daemons.scheduler;
    this.#agents = daemons.agents;
    this.#stopWithPlace();
  }

  /**
   * Starts all daemons of one release and waits until every machine has joined.
   * @param settings - of the scheduler
   * @param volumesDir - an existing directory
   */
  static async start(
    place: Workplace,
    release: Release,
    hosts: readonly GpuHost[],
    settings: Readonly<Record<string, string>>,
    volumesDir: string,
  ): Promise<Installation> {
    const { template } = await place.engine.baseImage();
    const dataDir = join(place.directory, 'd');
    const common = { ...place.env, LONGSHORE_DATA_DIR: dataDir, ...linkSocket(dataDir) };
    const any = { LONGSHORE_HTTP_ADDRESS: '127.0.0.1:0', LONGSHORE_AGENT_ADDRESS: '127.0.0.1:0' };
    const own = { ...common, ...settings, LONGSHORE_RATE_LIMITS: 'off' };
    const scheduler = startScheduler(place, { ...own, ...any }, release);
    const ready = await scheduler.ready();
    const addresses = {
      LONGSHORE_HTTP_ADDRESS: text(ready, 'httpAddress'),
      LONGSHORE_AGENT_ADDRESS: text(ready, 'agentAddress'),
    };
    const workspace = await scheduler.request({ kind: 'ensureFirstWorkspace' });
    const agents: Agent[] = [];
    for (const [at, { engine, settings: ofHost }] of hosts.entries()) {
      const agentDir = at === 0 ? dataDir : join(place.directory, `m${at + 1}`);
      const network = `longshore-${place.runId}-${at + 1}`;
      const env = {
        ...(at === 0 ? common : place.env),
        LONGSHORE_DATA_DIR: agentDir,
        LONGSHORE_SCHEDULER_ADDRESS: addresses.LONGSHORE_AGENT_ADDRESS,
        LONGSHORE_JOIN_TOKEN: text(await scheduler.request({ kind: 'createLocalMachine' }), 'joinToken'),
        LONGSHORE_AGENT_METRICS_ADDRESS: `127.0.0.1:${await freePort()}`,
        LONGSHORE_AGENT_NETWORK: network,
        LONGSHORE_SHARED_VOLUMES_DIR: volumesDir,
        LONGSHORE_BASE_IMAGE: template,
        ...ofHost,
      };
      const start = (of: Release): BenchChild => place.start({ name: `agent${at + 1}`, ...of.program('agent', env) });
      const child = start(release);
      await child.ready();
      const journalPath = join(agentDir, 'agent', 'journal.json');
      agents.push({ machineId: await machineIdIn(agentDir), network, journalPath, engine, start, child });
    }
    const url = `http://${addresses.LONGSHORE_HTTP_ADDRESS}`;
    const client = new Client({ url, token: text(workspace, 'token'), workspaceId: text(workspace, 'workspaceId') });
    const env = { ...own, ...addresses };
    return new Installation(place, { dataDir, client, volumesDir }, { env, scheduler, agents });
  }

  get machines(): readonly Machine[] {
    return this.#agents;
  }

  /** Whether the scheduler was away at some moment since then, by `performance.now()`. */
  readonly isAway = (sinceMs: number): boolean => this.#away.some(({ untilMs }) => untilMs >= sinceMs);

  /** Ends the scheduler by its signal and starts that of the release in its place, at the same addresses. */
  async replaceScheduler(release: Release): Promise<Replaced> {
    const away = { fromMs: performance.now(), untilMs: Number.POSITIVE_INFINITY };
    this.#away.push(away);
    await this.#scheduler.terminate(SCHEDULER_STOPS_MS);
    const endedAtMs = performance.now();
    this.#scheduler = startScheduler(this.#place, this.#env, release);
    this.#stopWithPlace();
    await this.#scheduler.ready();
    away.untilMs = performance.now();
    return { endedMs: endedAtMs - away.fromMs, readyMs: away.untilMs - endedAtMs };
  }

  /** Ends an agent by its signal, which leaves its containers, and starts that of the release on its state. */
  async replaceAgent(at: number, release: Release): Promise<Replaced> {
    const agent = this.#agents[at];
    if (agent === undefined) throw new Error(`there is no machine ${at + 1}`);
    const startedMs = performance.now();
    await agent.child.terminate(AGENT_STOPS_MS);
    const endedAtMs = performance.now();
    agent.child = agent.start(release);
    this.#stopWithPlace();
    await agent.child.ready();
    return { endedMs: endedAtMs - startedMs, readyMs: performance.now() - endedAtMs };
  }

  /** Ends the agents with their containers, then the scheduler once every record is stored. */
  stop(): Promise<void> {
    return (this.#stopped ??= this.#stopAll());
  }

  /** Containers end with their agent, so `stop` must run before the workplace ends a daemon that was started last. */
  #stopWithPlace(): void {
    this.#place.later(() => this.stop());
  }

  async #stopAll(): Promise<void> {
    await this.client.close();
    try {
      await Promise.all(
        this.#agents.map(async ({ child }) => {
          child.send({ kind: 'stop', containers: 'stop' });
          await child.ended(CONTAINERS_LEAVE_MS);
        }),
      );
    } finally {
      for (const { child } of this.#agents) await child.stop();
      await this.#scheduler.stop();
    }
  }
}
