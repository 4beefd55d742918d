// The parts of the agent in the order of their start; they stop in the reverse order. A part stops only where its start
// succeeded. An entry without a start marks the place of a stop in that order.
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import type { Part } from '#shared/lifecycle.ts';
import { PROTOCOL_VERSION } from '#shared/protocol/link.ts';
import type { ServiceManager } from '#shared/service-manager.ts';
import type { ControlHandler } from '../control.ts';
import { serveControl } from '../control.ts';
import { HeapGrowth } from '../heap-growth.ts';
import { toolkitVersion } from '../preflight/gpus.ts';
import { startPreflight } from '../preflight/watch.ts';
import type { Journal } from '../reconcile/journal.ts';
import { startSampling } from '../upstream/sampling.ts';
import { makeVolumesHome } from '../volumes/open.ts';
import type { Host } from './host.ts';
import type { Member } from './member.ts';
import type { Parts } from './parts.ts';
import { baseImageOf } from './parts.ts';
import { rebuildJournal, removeLeftovers } from './recovery.ts';

/** Time for the runner's compiler to finish when the agent stops. */
const STOP_COMPILER_MS = 5000;

type StopPart = () => Promise<void> | void;

export interface Started {
  readonly host: Host;
  readonly member: Member;
  readonly journal: Journal;
  readonly parts: Parts;
  readonly manager: ServiceManager;
  /** Called once the containers are reconciled with the journal. */
  readonly onReconciled: () => void;
  /** Serves requests of this host's administrator. */
  readonly serve: ControlHandler;
}

export function startOrder(started: Started): readonly Part[] {
  return [...stateParts(started), ...hostParts(started), ...containerParts(started), ...schedulerParts(started)];
}

/** Stored state of each part. */
function stateParts({ host, parts }: Started): readonly Part[] {
  const {
    pauseContainers,
    engineTrials,
    positions,
    archives,
    views,
    compiler,
    ledger,
    volumes,
    helperMounts,
    contact,
  } = parts;
  return [
    { name: 'pause containers', stop: () => pauseContainers.close() },
    { name: 'engine trials', stop: () => engineTrials.close() },
    { name: 'positions of output', start: () => positions.open(), stop: () => positions.close() },
    {
      name: 'code',
      start: async () => {
        const sockets = mkdir(join(host.stateDir, 's'), { recursive: true, mode: 0o711 });
        await Promise.all([archives.open(), views.open(), sockets]);
      },
    },
    {
      name: 'compiler',
      stop: () => Promise.race([compiler.idle(), sleep(STOP_COMPILER_MS).then(() => undefined)]),
    },
    { name: 'record of pulls', start: () => ledger.open() },
    { name: 'directory of volumes', start: () => makeVolumesHome(host.config) },
    { name: 'volumes', start: () => volumes.start(), stop: () => volumes.stop() },
    { name: 'mount helper', start: () => helperMounts.start(), stop: () => helperMounts.stop() },
    { name: 'contact', start: () => contact.open(), stop: () => contact.close() },
  ];
}

/** The machine is checked and cleaned up; its devices and disks are opened. */
function hostParts({ host, member, journal, parts }: Started): readonly Part[] {
  const { slots, gateway, executor, loop, gpus, cache, disks } = parts;
  return [
    partOf('preflight', () => startPreflight(host)),
    {
      name: 'recovery',
      start: async () => {
        await rebuildJournal(host, journal, member.machineIds());
        await removeLeftovers(host, journal, member.machineId(), parts);
      },
    },
    { name: 'slots', stop: () => slots.close() },
    { name: 'gateway', stop: () => gateway.close() },
    { name: 'supervisors', stop: () => parts.supervisors.close() },
    { name: 'executor', stop: () => executor.close() },
    { name: 'loop', stop: () => loop.stop() },
    // Devices open before containers are taken up: a container that ends asks for its devices.
    { name: 'devices', start: () => gpus.open() },
    // A step that an agent before this one began may have a device.
    { name: 'steps of builds that are left', start: () => parts.imageBuilds.recover() },
    { name: 'build facts', start: () => tellBuild(host, member, gpus.driver) },
    { name: 'image cache', stop: () => cache.stop() },
    { name: 'disks', stop: () => disks.stop() },
    { name: 'first look at disks', start: () => disks.start() },
    { name: 'eviction of images', start: () => cache.start() },
  ];
}

/**
 * Containers are reconciled with the journal before the scheduler is asked: their present state, and ends that came
 * while no agent ran.
 */
function containerParts({ host, parts, manager, onReconciled }: Started): readonly Part[] {
  const { loop, disconnects, gpus, agentState } = parts;
  let began = { fromMs: 0, before: process.cpuUsage() };
  return [
    {
      name: 'reconciliation',
      start: async () => {
        began = { fromMs: performance.now(), before: process.cpuUsage() };
        await loop.start();
      },
    },
    { name: 'disconnect watch', start: () => disconnects.start(), stop: () => disconnects.stop() },
    {
      name: 'first reconciliation',
      start: async () => {
        await gpus.rebuild();
        await loop.idle();
        const { user, system } = process.cpuUsage(began.before);
        host.log.info(
          {
            containers: agentState.attended.size,
            durationMs: Math.round(performance.now() - began.fromMs),
            processorMs: Math.round((user + system) / 1000),
          },
          'containers reconciled',
        );
      },
    },
    { name: 'GPU watch', start: () => gpus.start(), stop: () => gpus.stop() },
    {
      name: 'reconciled',
      start: () => {
        onReconciled();
        manager.ready('connecting to the scheduler');
      },
    },
  ];
}

/** The scheduler, and this host's administration. */
function schedulerParts({ host, member, parts, serve }: Started): readonly Part[] {
  const { stateDir, log, runtime, metrics, metricsAddress } = host;
  const { slots, caches, volumeUse, containerDisks, agentState, gpus, volumes, archives, link, compiler, rootLimits } =
    parts;
  const sampled = { runtime, agentState, gpus, volumes, containerDisks, archives, disks: parts.disks, metrics, log };
  return [
    partOf('heap growth', () => new HeapGrowth(() => slots.taken).start()),
    { name: 'cache volumes', start: () => caches.start(), stop: () => caches.stop() },
    { name: 'use of volumes', start: () => volumeUse.start(), stop: () => volumeUse.stop() },
    { name: 'disks of containers', start: () => containerDisks.start(), stop: () => containerDisks.stop() },
    partOf('sampling', () => startSampling({ ...sampled, send: (message) => link.send(message) })),
    { name: 'adopted runners', start: (signal) => parts.adoptedRunners.await([...agentState.attended], signal) },
    { name: 'files of volumes', stop: () => parts.volumeFiles.close() },
    { name: 'builds of images', start: () => parts.imageBuilds.start(), stop: () => parts.imageBuilds.stop() },
    {
      name: 'registry port',
      start: async () => {
        await parts.registryPort.start();
        await parts.built.tidy().catch((error: unknown) => log.info({ err: error }, 'names of built images were left'));
      },
      stop: () => parts.registryPort.stop(),
    },
    { name: 'link', start: () => link.start(), stop: () => link.stop() },
    { name: 'base images', start: () => parts.bases.start(), stop: () => parts.bases.stop() },
    { name: 'checks of the host', start: () => parts.hostWarnings.start(), stop: () => parts.hostWarnings.stop() },
    { name: 'pause containers ahead', start: () => parts.pauseContainers.start() },
    { name: 'limits of roots', start: () => void rootLimits.ask() },
    partOf('control', () => serveControl(stateDir, serve)),
    { name: 'compiled runner', start: () => compiler.want(baseImageOf(host)) },
    {
      name: 'started',
      start: () => {
        const machineId = member.machineId();
        log.info({ machineId, stateDir, metricsAddress, containers: agentState.attended.size }, 'agent started');
      },
    },
  ];
}

/** A part whose start returns its stop. */
function partOf(name: string, start: () => StopPart | Promise<StopPart>): Part {
  let stop: StopPart | undefined;
  return {
    name,
    start: async () => {
      stop = await start();
    },
    stop: () => stop?.(),
  };
}

async function tellBuild({ metrics, engine }: Host, { joinFacts }: Member, driver: string): Promise<void> {
  const toolkit = await toolkitVersion();
  metrics.buildInfo.set(
    {
      version: joinFacts.version,
      protocol: String(PROTOCOL_VERSION),
      docker_version: engine.version,
      driver_version: driver,
      toolkit_version: toolkit,
    },
    1,
  );
}
