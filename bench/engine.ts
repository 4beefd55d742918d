// The Docker Engine as the benchmarks use it. Objects of the run bear its label,
// and objects of the product bear its machine's; both are removed by label.
import Docker from 'dockerode';
import { sleep } from '#shared/backoff.ts';
import { connectionOptions } from '#agent/containers/engine/options.ts';
import { LABELS } from '#agent/containers/runtime.ts';

/** Label of containers that the benchmarks make themselves; its value is the run. */
export const BENCH_LABEL = 'io.longshore.bench';

const CALL_MS = 30_000;
const GONE_MS = 15_000;
const START_MS = 3_000;
const POLL_MS = 100;
/** Candidates: an official image where there was a registry, else the image that set-up built. */
const BASE_IMAGES = [
  { reference: 'python:3.11-slim', template: 'python:{version}-slim' },
  { reference: 'longshore-python:3.11', template: 'longshore-python:{version}' },
];

export class BenchEngine {
  readonly client: Docker;
  readonly runId: string;
  /** Containers of this run, those that are gone too. */
  readonly known = new Set<string>();
  readonly #labels: string[];
  readonly #networks: string[] = [];

  constructor(runId: string, host: string | undefined) {
    this.runId = runId;
    this.#labels = [`${BENCH_LABEL}=${runId}`];
    this.client = new Docker({ ...connectionOptions(host), timeout: CALL_MS });
  }

  /** @throws Error with the cure */
  async version(): Promise<string> {
    try {
      return (await this.client.version()).Version;
    } catch (error) {
      throw new Error('the Docker Engine does not answer: start it, or join its group, then repeat', { cause: error });
    }
  }

  /** The base image that containers use on both sides. @throws Error with the cure */
  async baseImage(): Promise<{ readonly reference: string; readonly template: string }> {
    for (const image of BASE_IMAGES) if (await this.#hasImage(image.reference)) return image;
    throw new Error('the engine holds no Python base image: `npm start` fetches or builds it');
  }

  /** Counts the containers of this machine and its network as the run's from now on; called once for each machine. */
  adopt(machineId: string, network: string): void {
    this.#labels.push(`${LABELS.machine}=${machineId}`);
    this.#networks.push(network);
  }

  /** Remembers the containers that run for us now. */
  async noteContainers(): Promise<void> {
    for (const id of await this.#list()) this.known.add(id);
  }

  /** How many containers of a deployment there are, in any state. */
  async countOfDeployment(deploymentId: string): Promise<number> {
    const filters = { label: [`${LABELS.deployment}=${deploymentId}`] };
    return (await this.client.listContainers({ all: true, filters })).length;
  }

  /** Counts the objects that bear the run's labels now, in any state. */
  async countOwn(): Promise<{ readonly containers: number; readonly holders: number; readonly volumes: number }> {
    let volumes = 0;
    for (const label of this.#labels)
      volumes += (await this.client.listVolumes({ filters: { label: [label] } })).Volumes?.length ?? 0;
    const holders = (await this.#list({ label: [LABELS.pauseContainer] })).length;
    return { containers: (await this.#list()).length - holders, holders, volumes };
  }

  /** Removes all objects that bear the run's labels. @throws Error naming what is left */
  async removeAll(): Promise<void> {
    let ids: readonly string[];
    try {
      ids = await this.#list();
    } catch {
      // Without an engine, nothing was made.
      return;
    }
    // An engine that removes a container during its start keeps that
    // container's place in the network for ever, so starts are waited for.
    const startedMs = performance.now() + START_MS;
    while (performance.now() < startedMs && (await this.#list({ status: ['created'] })).length > 0)
      await sleep(POLL_MS);
    // Containers that a killed agent had asked for may still appear,
    // and those being removed still have their place in the network.
    const deadlineMs = performance.now() + GONE_MS;
    while (ids.length > 0 && performance.now() < deadlineMs) {
      for (const id of ids) await this.remove(id);
      await sleep(POLL_MS);
      ids = await this.#list();
    }
    for (const label of this.#labels) {
      const { Volumes: volumes } = await this.client.listVolumes({ filters: { label: [label] } });
      for (const volume of volumes ?? []) await this.client.getVolume(volume.Name).remove().catch(ifGone);
    }
    for (const network of this.#networks)
      while (!(await this.#removeNetwork(network, performance.now() < deadlineMs))) await sleep(POLL_MS);
  }

  /** The engine counts the place of a container for a moment after it is gone. */
  async #removeNetwork(name: string, mayBeInUse: boolean): Promise<boolean> {
    try {
      await this.client.getNetwork(name).remove();
    } catch (error) {
      if (mayBeInUse && statusOf(error) === 403) return false;
      ifGone(error);
    }
    return true;
  }

  async remove(id: string): Promise<void> {
    await this.client.getContainer(id).remove({ force: true, v: true }).catch(ifGone);
  }

  async #list(
    more: { readonly label?: readonly string[]; readonly status?: string[] } = {},
  ): Promise<readonly string[]> {
    const ids: string[] = [];
    for (const label of this.#labels) {
      const filters = { ...more, label: [label, ...(more.label ?? [])] };
      const found = await this.client.listContainers({ all: true, filters });
      ids.push(...found.map((container) => container.Id));
    }
    return ids;
  }

  async #hasImage(reference: string): Promise<boolean> {
    try {
      await this.client.getImage(reference).inspect();
      return true;
    } catch (error) {
      ifGone(error);
      return false;
    }
  }
}

/** 404: gone already; 409: another request removes it at this moment. */
function ifGone(error: unknown): void {
  const status = statusOf(error);
  if (status !== 404 && status !== 409) throw error;
}

const statusOf = (error: unknown): unknown =>
  error instanceof Error && 'statusCode' in error ? error.statusCode : undefined;
