/**
 * A host with GPUs in this process: the agent's room of devices is the real one, the driver and the probe's container
 * are stand-ins. Containers start, end and run on over restarts of the agent and of the engine; the host boots.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import { EngineError } from '../../agent/containers/runtime.ts';
import { Gpus } from '../../agent/devices/gpus.ts';
import type { GpusParts } from '../../agent/devices/gpus.ts';
import type { LeaseOwner } from '../../agent/devices/leases.ts';
import { NvidiaSmi } from '../../agent/devices/nvidia-smi.ts';
import type { PciGpu } from '../../agent/devices/pci.ts';
import { Conditions } from '../../agent/telemetry/conditions.ts';
import { AgentMetrics } from '../../agent/telemetry/metrics.ts';
import type { FakeDriver } from './gpus.ts';
import { FakeNvidia, askFake } from './gpus.ts';

const SOON = { timeout: 10_000, interval: 5 };

export class GpuHost {
  readonly directory = mkdtempSync(join(tmpdir(), 'lsg-'));
  readonly nvidia: FakeNvidia;
  readonly conditions = new Conditions();
  readonly faults: string[] = [];
  /** Arguments of each question to the tool. */
  readonly asked: string[] = [];
  /** Containers that have devices. */
  owners: LeaseOwner[] = [];
  pci: readonly PciGpu[] = [];
  probe: GpusParts['probe'] = () => Promise.resolve({ kind: 'passed', text: '' });
  reset: GpusParts['reset'] = () => Promise.resolve();
  metrics = new AgentMetrics();
  excluded: readonly string[] = [];
  /** Settings of the agent that a test changes. */
  parts: Partial<GpusParts> = {};
  /** Called between the first look and the reading of the journal. */
  opened: (gpus: Gpus) => void = () => undefined;
  /** The engine answers nobody. */
  isEngineAway = false;
  #boots = 0;
  #gpus: Gpus | undefined;
  #containers = 0;

  constructor(driver: FakeDriver) {
    const edge = join(this.directory, 'edge');
    mkdirSync(edge);
    this.nvidia = new FakeNvidia(edge, driver);
  }

  get gpus(): Gpus {
    if (this.#gpus === undefined) throw new Error('no agent runs');
    return this.#gpus;
  }

  /** The tool, as the agent asks it. */
  smi(): NvidiaSmi {
    return new NvidiaSmi(
      askFake(
        () => this.nvidia.now,
        (args) => this.asked.push(args.join(' ')),
      ),
    );
  }

  /** The tool of a host that has none. */
  withoutTool(): NvidiaSmi {
    return new NvidiaSmi((args) => {
      this.asked.push(args.join(' '));
      return Promise.resolve({ kind: 'missing', path: 'nvidia-smi' });
    });
  }

  /** The agent starts; the one before has stopped. */
  async start(parts: Partial<GpusParts> = this.parts): Promise<void> {
    await this.stop();
    this.metrics = new AgentMetrics();
    const log = createLog({ name: 'test', level: 'silent' });
    const gpus = new Gpus({
      smi: this.smi(),
      stateDir: this.directory,
      bootId: `boot-${this.#boots}`,
      excluded: this.excluded,
      kernelLog: this.nvidia.kernelLog,
      probeEveryMs: 5,
      proofMs: 50,
      pciGpus: () => Promise.resolve(this.pci),
      metrics: this.metrics,
      log,
      leaseOwners: () => this.owners,
      running: () => this.owners.map(({ containerId, dockerId = '' }) => ({ containerId, dockerId })),
      askInside: () => this.#ask('inside', () => Promise.resolve({ kind: 'said', text: 'GPU 0: NVIDIA H100' })),
      probe: (uuid, signal) => this.#ask('probe', () => this.probe(uuid, signal)),
      reset: (device) => this.reset(device),
      conditions: this.conditions,
      onLook: () => undefined,
      ...parts,
    });
    this.#gpus = gpus;
    gpus.onFault((containerId) => this.faults.push(containerId));
    await gpus.open();
    this.opened(gpus);
    await gpus.rebuild();
    gpus.start();
  }

  async stop(): Promise<void> {
    await this.#gpus?.stop();
    this.#gpus = undefined;
  }

  /** The host boots: its containers are gone, and so is the kernel's log. */
  async boot(meanwhile: Partial<FakeDriver> = {}): Promise<void> {
    await this.stop();
    this.#boots += 1;
    this.owners = [];
    this.nvidia.is(meanwhile);
    writeFileSync(this.nvidia.kernelLog, '');
    await this.start();
  }

  /**
   * The engine restarts, and the agent looks at its devices meanwhile.
   * @param live - whether containers run on, as with live-restore; otherwise the agent sees their ends afterwards
   */
  async engineRestarts(live: boolean): Promise<void> {
    this.isEngineAway = true;
    await this.looks();
    this.isEngineAway = false;
    if (!live) for (const { containerId } of [...this.owners]) await this.ends(containerId);
    await this.looks();
  }

  async #ask<T>(what: string, answer: () => Promise<T>): Promise<T> {
    if (this.isEngineAway) throw new EngineError('unavailable', `no answer of the engine: ${what}`);
    return await answer();
  }

  async close(): Promise<void> {
    await this.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** A container gets those devices, when the agent gives them. @returns why it does not; undefined: it has them */
  async runs(containerId: string, ...gpuUuids: string[]): Promise<string | undefined> {
    const wanted = { containerId, epoch: 1, gpuUuids };
    const refusal = this.gpus.refusal(wanted);
    if (refusal !== undefined) return refusal.message;
    this.#containers += 1;
    this.owners.push({ ...wanted, dockerId: `docker-${this.#containers}` });
    return undefined;
  }

  /** The container ends, and its devices are given back as the agent does it. */
  async ends(containerId: string): Promise<void> {
    const owner = this.owners.find((one) => one.containerId === containerId);
    if (owner === undefined) throw new Error(`no container ${containerId}`);
    await this.gpus.release(owner.gpuUuids, owner.dockerId);
    this.owners = this.owners.filter((one) => one !== owner);
  }

  states(): Readonly<Record<string, string>> {
    return Object.fromEntries(this.gpus.report().map(({ uuid = '', state = '' }) => [uuid, state]));
  }

  async are(states: Readonly<Record<string, string>>): Promise<void> {
    await vi.waitFor(() => expect(this.states()).toEqual(states), SOON);
  }

  /** Waits for more looks of the agent: a state that lasts over them is no passing one. */
  async looks(times = 3): Promise<void> {
    const from = this.asked.filter((args) => args.startsWith('--query-gpu')).length;
    await vi.waitFor(
      () => expect(this.asked.filter((args) => args.startsWith('--query-gpu')).length).toBeGreaterThan(from + times),
      SOON,
    );
  }

  page(): Promise<string> {
    return this.metrics.registry.metrics();
  }
}
