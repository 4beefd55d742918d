/**
 * An installation on several simulated hosts. The scheduler is one process of its own; each host has its own engine and
 * an agent of a release built for the tests. Agents join over TLS as a person joins them (CreateMachine, its token, its
 * address). `test` gives three hosts to a test file; each test repairs what it breaks.
 */
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { ContainerInfo } from 'dockerode';
import { AGENT_NODE_OPTIONS } from '#shared/agent-process.ts';
import type { Container as ContainerView } from '#shared/api/containers.ts';
import type { ContainerSection, Explanation } from '#shared/api/explain.ts';
import type { HostOptions, SimulatedHost } from './hosts/host.ts';
import { SimulatedNetwork, whyNoHosts } from './hosts/network.ts';
import { Daemon, Platform, ROOT, jsonOf } from './platform.ts';
import type { AppRequest, Deployment } from './platform.ts';
import { docker, test as base, waitFor } from './services.ts';
import type { TestDocker } from './services.ts';

/** Time for a container on each host, including the hosts' first images. */
const ON_EACH_MS = 60_000;

export type { SimulatedHost } from './hosts/host.ts';
export { whyNoHosts } from './hosts/network.ts';

/** A worker as ListWorkers gives it; fields that tests read. */
export interface WorkerView {
  readonly id: string;
  readonly machineId: string;
  readonly status: string;
  /** null: the worker does not drain, and has not drained. */
  readonly drain: {
    readonly total: number;
    readonly remaining: number;
    readonly blockedBy: readonly { readonly containerId: string; readonly why: string; readonly attempts: number }[];
  } | null;
}

/** A deployment with a container on each host. */
export interface OnEach {
  readonly deployment: Deployment;
  readonly containerOf: (member: Member) => Promise<string>;
}

/** A simulated host with its agent. */
export interface Member {
  readonly host: SimulatedHost;
  readonly agent: Daemon;
  /** Id of the machine, once the agent has joined. */
  readonly machineId: () => string;
}

export interface HostsOptions {
  readonly count?: number;
  /** Options of each host, by its place. */
  readonly host?: (at: number) => HostOptions;
  /** Settings of both daemons. */
  readonly settings?: NodeJS.ProcessEnv;
  /** Settings of the agent on that host. */
  readonly agentSettings?: (host: SimulatedHost) => NodeJS.ProcessEnv;
}

export class HostsPlatform extends Platform {
  readonly members: Member[] = [];
  readonly simulated: SimulatedNetwork;
  readonly #options: HostsOptions;
  readonly #deployments: Deployment[] = [];
  readonly #joinTokens = new Map<SimulatedHost, string>();

  constructor(engine: TestDocker, simulated: SimulatedNetwork, options: HostsOptions = {}) {
    super(engine, options.settings);
    this.simulated = simulated;
    this.#options = options;
    this.agentAddress = `${simulated.gateway}:0`;
  }

  override async start(): Promise<void> {
    await this.startScheduler();
    const first = await this.scheduler.request('ensureFirstWorkspace');
    this.token = String(first['token']);
    this.workspaceId = String(first['workspaceId']);
    await Promise.all(this.simulated.hosts.map((host) => this.join(host)));
    await this.ready();
  }

  /** Admits a machine and starts the agent of that host with its token. */
  async join(host: SimulatedHost): Promise<Member> {
    const made = await this.gateway('/machines', { poolName: 'default' });
    this.#joinTokens.set(host, made['agentUpstreamToken'] ?? '');
    const member = this.#memberOn(host);
    this.members.push(member);
    await member.agent.start();
    this.#joinTokens.delete(host);
    return member;
  }

  #memberOn(host: SimulatedHost): Member {
    const { settings, agentSettings } = this.#options;
    const release = releaseIn(this.simulated.directory);
    const program = [join(release, 'bin', 'node'), ...AGENT_NODE_OPTIONS, join(release, 'lib', 'agent.mjs')];
    const env = (): NodeJS.ProcessEnv => {
      const joinToken = this.#joinTokens.get(host);
      return {
        ...this.env(),
        ...settings,
        LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:9464',
        LONGSHORE_SCHEDULER_ADDRESS: this.agentAddress,
        ...host.agentEnv,
        ...agentSettings?.(host),
        ...(joinToken === undefined ? {} : { LONGSHORE_JOIN_TOKEN: joinToken }),
      };
    };
    const log = join(this.directory, `agent-${host.name}.log`);
    const agent = new Daemon('agent', log, env, [...host.enter, ...program]);
    return { host, agent, machineId: () => machineIdOn(host) ?? '' };
  }

  /** All workers, in an operator's view. */
  async workers(): Promise<readonly WorkerView[]> {
    const answer = await this.gateway<{ workers: readonly WorkerView[] }>('/workers');
    return answer.workers;
  }

  /** The worker of a member. */
  async worker(member: Member): Promise<WorkerView | undefined> {
    return (await this.workers()).find(({ machineId }) => machineId === member.machineId());
  }

  async statusIs(member: Member, status: string, timeoutMs = 15_000): Promise<void> {
    let seen: WorkerView | undefined;
    await waitFor(
      async () => {
        seen = await this.worker(member);
        return seen?.status === status;
      },
      `the worker on ${member.host.name} is ${status}`,
      timeoutMs,
    ).catch((error: unknown) => {
      throw new Error(`it is ${JSON.stringify(seen)}`, { cause: error });
    });
  }

  /** Waits until every member takes work. */
  async ready(timeoutMs = 30_000): Promise<void> {
    await Promise.all(this.members.map((member) => this.statusIs(member, 'available', timeoutMs)));
  }

  /** The members of an installation with two hosts. */
  get two(): readonly [Member, Member] {
    const [one, two] = this.members;
    if (one === undefined || two === undefined) throw new Error('there are two hosts');
    return [one, two];
  }

  /** Leaves one machine to take work. */
  async only(member: Member): Promise<void> {
    for (const one of this.members)
      await this.gateway(`/workers/${one.machineId()}/${one === member ? 'uncordon' : 'cordon'}`, {});
    await this.statusIs(member, 'available', 30_000);
  }

  /** On which member a container is. */
  async memberOf(containerId: string): Promise<Member | undefined> {
    for (const member of this.members) {
      const found = await member.host.containers([`io.longshore.container=${containerId}`]).catch(() => []);
      if (found.length > 0) return member;
    }
    return undefined;
  }

  /** Longshore's containers on all hosts, in any state. */
  override async containers(deployment?: Deployment): Promise<readonly ContainerInfo[]> {
    const label =
      deployment === undefined ? 'io.longshore.container' : `io.longshore.deployment=${deployment.deploymentId}`;
    return (await Promise.all(this.members.map(({ host }) => host.containers([label])))).flat();
  }

  /** Runs a shell command in a container on any host. @returns its output on both streams @throws when it fails */
  async exec(containerId: string, command: string): Promise<string> {
    const member = await this.memberOf(containerId);
    if (member === undefined) throw new Error(`there is no container ${containerId}`);
    const [info] = await member.host.containers([`io.longshore.container=${containerId}`]);
    const exec = await member.host.docker
      .getContainer(info?.Id ?? '')
      .exec({ Cmd: ['sh', '-c', command], AttachStdout: true, AttachStderr: true, Tty: true });
    const said = await text(await exec.start({ Tty: true }));
    const { ExitCode } = await waitFor(
      async () => {
        const state = await exec.inspect();
        return !state.Running && state;
      },
      `${command} ends`,
      30_000,
    );
    if (ExitCode !== 0) throw new Error(`${command} in ${containerId} ended with ${ExitCode}:\n${said}`);
    return said.trim();
  }

  /** Containers that are wanted, as ListContainers gives them. */
  async containerViews(): Promise<readonly ContainerView[]> {
    return (await this.gateway<{ containers: readonly ContainerView[] }>('/containers')).containers;
  }

  /** Longshore's explanation of a task or a container. */
  async explain(id: string): Promise<Explanation> {
    return jsonOf<Explanation>(await this.call(`/api/v1/explain/${this.workspaceId}/${id}`));
  }

  async containerSection(containerId: string): Promise<ContainerSection> {
    const { container } = await this.explain(containerId);
    if (container === null) throw new Error(`there is no container ${containerId}`);
    return container;
  }

  /** A queue with one container on each member, which takes `slots` tasks at a time; ready. */
  async onEach(name: string, slots = 1, fields: Readonly<Record<string, unknown>> = {}): Promise<OnEach> {
    const { length: count } = this.members;
    const deployment = await this.deploy({
      app: 'counted.py',
      handler: 'handler',
      name,
      stubType: 'taskqueue/deployment',
      // The request is more than half of a member's CPU.
      cpu: 600,
      concurrentRequests: slots,
      keepWarmSeconds: 600,
      timeout: 300,
      retries: 3,
      autoscaler: { type: 'queue_depth', maxContainers: count, tasksPerContainer: slots },
      ...fields,
    });
    const containerOf = async (member: Member): Promise<string> => {
      const [one] = await member.host.containers([`io.longshore.deployment=${deployment.deploymentId}`]);
      return one?.Labels['io.longshore.container'] ?? '';
    };
    // A host that is ready before the others may do all of a round by itself. Then no task is left to start a container
    // on the others, so another round follows.
    const deadlineMs = Date.now() + ON_EACH_MS;
    for (let round = 0; ; round += 1) {
      const tasks = Array.from({ length: count * slots }, (_value, at) =>
        this.put(deployment, { key: `first-${round}-${at}`, seconds: 0.5 }),
      );
      await Promise.all((await Promise.all(tasks)).map((taskId) => this.taskIs(taskId, 'COMPLETE', 60_000)));
      const containers = await Promise.all(this.members.map(containerOf));
      if (containers.every((id) => id !== '')) break;
      if (Date.now() > deadlineMs) throw new Error(`${name} has no container on each host: ${containers.join(', ')}`);
    }
    return { deployment, containerOf };
  }

  /** Puts a task on a deployment's queue; gives its id. */
  async put(deployment: Deployment, input: unknown): Promise<string> {
    const answer = await this.invoke(deployment, input);
    const { task_id: taskId } = jsonOf<{ task_id?: string }>(answer);
    if (answer.status !== 200 || taskId === undefined) throw new Error(`not taken: ${answer.status} ${answer.text}`);
    return taskId;
  }

  /**
   * Number of times that the handler of counted.py began with each key, over all running containers of the deployment.
   */
  async runs(deployment: Deployment): Promise<ReadonlyMap<string, number>> {
    const counts = new Map<string, number>();
    const running = (await this.containers(deployment)).filter(({ State }) => State === 'running');
    for (const { Labels } of running) {
      const said = await this.exec(Labels['io.longshore.container'] ?? '', 'cd /tmp && grep -c ran ran-* /dev/null');
      for (const [, key = '', count] of said.matchAll(/ran-(\S+):(\d+)/g))
        counts.set(key, (counts.get(key) ?? 0) + Number(count));
    }
    return counts;
  }

  /**
   * Sum of a metric's series on the scheduler's page; 0 when there are none. @param labels - labels that must be there
   */
  async metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
    const page = (await this.call('/metrics', { token: '' })).text;
    const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
    const lines = page.split('\n').filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
    const found = lines.filter((line) => wanted.every((label) => line.includes(label)));
    return found.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
  }

  /** How many machines have that health. */
  inHealth(health: string): Promise<number> {
    return this.metric('longshore_scheduler_machines', { health });
  }

  override async deploy(request: AppRequest): Promise<Deployment> {
    const deployment = await super.deploy(request);
    this.#deployments.push(deployment);
    return deployment;
  }

  /**
   * Repairs the hosts after a test, however it ended: cables in, drains taken back, engines and agents running, its
   * deployments stopped and their containers gone.
   */
  async mend(): Promise<void> {
    for (const { host, agent } of this.members) {
      host.thawEngine();
      await host.heal();
      if (!host.engineRuns) await host.startEngine();
      if (agent.isRunning) agent.thaw();
      else await agent.start();
    }
    for (const member of this.members) await this.gateway(`/workers/${member.machineId()}/uncordon`, {});
    await this.ready(60_000);
    const deployments = this.#deployments.splice(0);
    for (const { deploymentId } of deployments) await this.gateway(`/deployments/${deploymentId}/stop`, {});
    for (const deployment of deployments) await this.noContainers(deployment, 60_000);
  }

  override async stop(): Promise<void> {
    try {
      // The agents' containers go with their engines.
      await Promise.all(this.members.splice(0).map(({ agent }) => agent.stop()));
      await super.stop();
    } finally {
      await this.simulated.down();
    }
  }
}

/** The machine's id after the join of the agent on that host; undefined before. */
export function machineIdOn(host: SimulatedHost): string | undefined {
  const path = join(host.directory, 'data', 'agent', 'machine.json');
  if (!existsSync(path)) return undefined;
  return (JSON.parse(readFileSync(path, 'utf8')) as { machineId: string }).machineId;
}

// Plain JavaScript, so that its type is said where it is used.
const RELEASES: string = join(ROOT, 'scripts', 'build', 'release.mjs');

/** The release whose agent the hosts run. */
const releaseIn = (directory: string): string => join(directory, 'release');

/**
 * Settings that shorten minutes to seconds; a host holds one container of `onEach`. The time until a machine is lost
 * exceeds the time in which an agent may come back (15 s), like the default of 90 s.
 */
const QUICK: HostsOptions = {
  settings: { LONGSHORE_MACHINE_LOST_SECONDS: '30', LONGSHORE_RESTART_GRACE_SECONDS: '0' },
  agentSettings: () => ({ LONGSHORE_AGENT_CPU: '1', LONGSHORE_AGENT_MEMORY: '2048' }),
};

/** Starts hosts with an installation on them; `stop` removes all of it. */
export async function aHostsPlatform(options: HostsOptions = {}): Promise<HostsPlatform> {
  if (whyNoHosts !== undefined) throw new Error(whyNoHosts);
  const engine = await docker();
  const { writeRelease } = (await import(RELEASES)) as { writeRelease: (directory: string) => Promise<void> };
  const network = await SimulatedNetwork.up(options.count ?? 3, engine.baseImage, options.host, (directory) =>
    writeRelease(releaseIn(directory)),
  );
  const platform = new HostsPlatform(engine, network, options);
  try {
    await platform.start();
  } catch (error) {
    const logs = platform.members.map(({ agent }) => agent.log().slice(-1500)).join('\n');
    await platform.stop().catch(() => undefined);
    throw new Error(`the installation on simulated hosts did not start:\n${logs}`, { cause: error });
  }
  return platform;
}

/** `test` with an installation on simulated hosts, one for the file. */
export const testOnHosts = (options: HostsOptions = QUICK) =>
  base
    .extend('installation', { scope: 'file' }, async ({}, { onCleanup }): Promise<HostsPlatform> => {
      const installation = await aHostsPlatform(options);
      onCleanup(() => installation.stop());
      return installation;
    })
    .extend('fleet', async ({ installation }, { onCleanup }): Promise<HostsPlatform> => {
      onCleanup(() => installation.mend());
      return installation;
    });
