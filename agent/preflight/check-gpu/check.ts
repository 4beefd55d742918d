/**
 * `longshore agent check-gpu`, the acceptance test of a GPU host. Checks the engine, the driver and its tool, each
 * device, MIG, and the condition of GPUs and links. A container and a CUDA program then get a device by each way that
 * the host has, as the agent does it. The check starts containers on unused devices only. Nothing is leased, and
 * nothing is left, even after an interruption.
 */
import { open, readFile } from 'node:fs/promises';
import { cpus, hostname, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { gpuModelOf } from '#shared/domain/gpus.ts';
import { messageOf } from '#shared/errors.ts';
import { cdiGpus } from '../../containers/cdi.ts';
import type { ContainerRuntime, EngineInfo, GpuDriver } from '../../containers/runtime.ts';
import { programOutput } from '../program-output.ts';
import { engineFailure, engineFindings } from '../engine.ts';
import { conditionFindings, readFabric, toolkitFindings } from '../gpus.ts';
import { ownVersion } from '#shared/version.ts';
import type { DeviceContainer } from './container.ts';
import { cudaLine, imageLine, openDevice } from './container.ts';
import { CheckRun } from './run.ts';
import type { ForeignContainer } from './reload.ts';
import { mountedGpus, reloadNotAsked, reloadRefusal, tryReload } from './reload.ts';
import type { GpuReport, Line } from './report.ts';
import { line, outcomeOf } from './report.ts';
import { KMSG } from '../../devices/kernel-log.ts';
import type { NvidiaSmi, Processes, Slices } from '../../devices/nvidia-smi.ts';
import { NO_SLICES } from '../../devices/nvidia-smi.ts';
import type { GpuRow, Listing, MigSlice, ProbeFailure } from '../../devices/parse.ts';
import { busIdOf, recoveryOf } from '../../devices/parse.ts';
import { readPciGpus } from '../../devices/pci.ts';
import type { PciGpu } from '../../devices/pci.ts';
import { MISSING_GPU_STEP } from '../missing-gpus.ts';
import { meaningOf, parseXid } from '../../devices/xid.ts';

const ASK_MS = 5000;
const MOST_XIDS = 200;
const BROKEN = 'look at the Docker Engine (systemctl status docker) and its log, and repeat';
/** Bound on devices that each get a container: a host has 16 at most, and one slice stands for a divided device. */
const MOST_DEVICES = 16;
const REMEDIES: Readonly<Record<ProbeFailure, string>> = {
  timeout: 'the driver hangs: look at the kernel log (`dmesg | grep NVRM`); a reboot is usually what helps',
  not_found: "install NVIDIA's driver, or name the tool's full path in LONGSHORE_NVIDIA_SMI",
  no_driver: 'the driver is not loaded: `modprobe nvidia`, or reboot after its installation',
  driver_mismatch: 'the driver was upgraded and the old one is still loaded: reboot',
  off_bus: 'a GPU does not answer any more: reboot, and look at its seating and power',
  permission: 'run this as root, or as a user who may use /dev/nvidia*',
  unparsable: 'this driver answers in a form that is not known here: please report the text above',
  error: 'please report the text above, if `nvidia-smi` works by hand',
};

export interface CheckParts {
  readonly smi: NvidiaSmi;
  readonly runtime: ContainerRuntime & { gpuContainers(): Promise<ForeignContainer[]> };
  /** DOCKER_HOST, when it is set. */
  readonly engineAt: string | undefined;
  /** An image with `sleep`, and a C library for the driver's programs. */
  readonly image: string;
  /** Whether systemd has to reload its units. */
  readonly reload: boolean;
  /** Devices that the operator excludes, by UUID or bus id: no container gets one. */
  readonly excluded: readonly string[];
  /** Ends the check: its containers are removed, and the report has the lines until then. */
  readonly signal: AbortSignal;
  readonly kernelLog?: string;
  readonly pciGpus?: () => Promise<readonly PciGpu[]>;
  /** Words about GPUs that the host should have, after that answer of the tool. */
  readonly missing: (listing: Listing, pci: readonly PciGpu[]) => Promise<readonly string[]>;
}

/** Results of the check so far. */
interface Seen {
  readonly checks: Line[];
  rows: readonly GpuRow[];
  engine: EngineInfo | undefined;
  /** undefined: not known. */
  hasGpus: boolean | undefined;
}

/** @returns a report in every case: an unforeseen fault becomes a line of it */
export async function checkGpus(parts: CheckParts): Promise<GpuReport> {
  const [startedAt, fromMs] = [new Date().toISOString(), performance.now()];
  const { signal } = parts;
  const seen: Seen = { checks: [], rows: [], engine: undefined, hasGpus: undefined };
  const facts = Promise.all([hostFacts(), versionOf('containerd'), versionOf('runc'), versionOf('nvidia-ctk')]);
  try {
    const devices = await unlessAborted(look(parts, seen), signal);
    if (devices !== undefined) await tryDevices(parts, devices, seen.checks);
  } catch (error) {
    if (!signal.aborted) seen.checks.push(line('failed', 'check', messageOf(error), BROKEN));
  }
  const [host, containerd, runc, toolkit] = await facts;
  return {
    ...outcomeOf(seen.checks, { hasGpus: seen.hasGpus !== false, interrupted: signal.aborted }),
    startedAt,
    seconds: (performance.now() - fromMs) / 1000,
    host,
    versions: {
      longshore: ownVersion(),
      driver: seen.rows[0]?.driver ?? '',
      docker: seen.engine?.version ?? '',
      containerd,
      runc,
      toolkit,
    },
    gpus: seen.rows.map(({ index, uuid, name, memoryMib, busId, migEnabled }) => ({
      ...{ index, uuid, name, memoryMib, busId, migEnabled },
    })),
    checks: seen.checks,
  };
}

/** Waits for the work, or until the signal. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = new Promise<never>((_resolve, reject) => {
    const end = (): void => reject(new Error('interrupted'));
    if (signal.aborted) end();
    else signal.addEventListener('abort', end, { once: true });
  });
  return Promise.race([work, aborted]);
}

interface Devices {
  readonly info: EngineInfo;
  readonly rows: readonly GpuRow[];
  /** UUIDs of devices that containers may get. */
  readonly offered: readonly string[];
}

/**
 * Runs all checks that need no container.
 * @returns undefined when there is nothing to try with containers
 */
async function look(
  { smi, runtime, engineAt, excluded, kernelLog, missing, pciGpus = readPciGpus }: CheckParts,
  seen: Seen,
): Promise<Devices | undefined> {
  const { checks } = seen;
  const pci = await pciGpus();
  const [listing, engine] = await Promise.all([
    smi.list(pci.map(({ busId }) => ({ uuid: '', busId }))),
    runtime.info().then(
      (info) => ({ info, lines: engineFindings(info) }),
      (error: unknown) => ({ info: undefined, lines: [engineFailure(error, engineAt)] }),
    ),
  ]);
  seen.engine = engine.info;
  if (listing.kind === 'unknown_field') throw new Error('the tool was asked for the same field again');
  const absent = (await missing(listing, pci)).map((fault) => line('failed', 'gpu missing', fault, MISSING_GPU_STEP));
  if (listing.kind === 'failed') {
    const isMissing = listing.reason === 'not_found' && absent.length === 0;
    seen.hasGpus = !isMissing;
    const text = listing.text || listing.reason;
    checks.push(line(isMissing ? 'skipped' : 'failed', 'driver', text, REMEDIES[listing.reason]), ...absent);
    return undefined;
  }
  const { rows, broken, unreadable } = listing;
  seen.rows = rows;
  seen.hasGpus = rows.length > 0 || broken.length > 0 || unreadable > 0 || absent.length > 0;
  if (!seen.hasGpus) {
    checks.push(line('skipped', 'driver', 'the driver is there and finds no device'));
    return undefined;
  }
  const divided = rows.filter((row) => row.migEnabled);
  const slices = divided.length > 0 ? await smi.slices(divided) : NO_SLICES;
  checks.push(
    ...engine.lines,
    ...rows.map(deviceLine),
    ...absent,
    ...(unreadable > 0
      ? [line('failed', 'device', `${unreadable} rows of nvidia-smi cannot be read`, REMEDIES.unparsable)]
      : []),
    migLine(rows, slices),
  );
  checks.push(...conditionFindings(await smi.conditions(rows), await readFabric()));
  checks.push(...(await toolkitFindings()));
  checks.push(...(await kernelLines(kernelLog ?? KMSG)));
  checks.push(processesLine(rows, await smi.processes(rows)));
  if (engine.info === undefined) return undefined;
  const kept = new Set(excluded.map((one) => busIdOf(one) || one.toLowerCase()));
  const free = rows.filter(({ uuid, busId }) => !kept.has(uuid.toLowerCase()) && !kept.has(busId));
  return {
    info: engine.info,
    rows,
    offered: wholeOrSlices(free, slices.found),
  };
}

/** UUIDs to try: each whole device, and the first slice of each divided one. */
const wholeOrSlices = (rows: readonly GpuRow[], slices: readonly MigSlice[]): readonly string[] =>
  rows
    .flatMap((row) => (row.migEnabled ? (slices.find((one) => one.parentUuid === row.uuid)?.uuid ?? []) : row.uuid))
    .slice(0, MOST_DEVICES);

/** Tries containers with devices, and removes them in every case. An engine that fails becomes a line. */
async function tryDevices(parts: CheckParts, devices: Devices, lines: Line[]): Promise<void> {
  const { runtime, signal } = parts;
  const run = await CheckRun.begin(runtime);
  // An interruption removes the containers, which ends every wait for one.
  const end = (): void => void run.removeOwn().catch(() => undefined);
  signal.addEventListener('abort', end, { once: true });
  try {
    await tried(parts, devices, run, lines);
  } catch (error) {
    if (!signal.aborted) lines.push(line('failed', 'containers', messageOf(error), BROKEN));
  } finally {
    signal.removeEventListener('abort', end);
    await run.removeOwn().catch((error: unknown) => lines.push(notRemoved(error)));
    run.end();
  }
}

const notRemoved = (error: unknown): Line =>
  line(
    'warning',
    'containers',
    `those of this check may be left: ${messageOf(error)}`,
    'repeat the check once Docker answers: it removes them',
  );

/** Tries each free device by the agent's way, and the first one by the other way too. */
async function tried(
  { runtime, smi, image, reload, signal }: CheckParts,
  { info, rows, offered }: Devices,
  run: CheckRun,
  lines: Line[],
): Promise<void> {
  const ended = await run.removeEnded();
  if (ended > 0) lines.push(line('ok', 'containers', `${ended} of an earlier check, which was killed, are removed`));
  const pulled = await imageLine(runtime, image, signal);
  signal.throwIfAborted();
  if (pulled !== undefined) lines.push(pulled);
  if (pulled?.level === 'failed') return;
  // The use is read after the pull, which may take minutes: other work may have begun.
  const used = new Set([...(await smi.processes(rows)).values()].flat().map(({ uuid }) => uuid));
  const [foreign, mounted, byCdi] = await Promise.all([runtime.gpuContainers(), mountedGpus(), cdiGpus(info)]);
  const taken = (uuid: string): string => {
    // A container that may use all devices, such as an exporter of metrics, uses only those on which it has a process.
    const other = foreign.find(({ uuids }) => uuids !== 'all' && uuids.includes(uuid));
    return other !== undefined ? `container ${other.name} has it` : used.has(uuid) ? 'a process uses it' : '';
  };
  const open: DeviceContainer[] = [];
  let isFirst = true;
  for (const uuid of offered) {
    const use = taken(uuid);
    if (use !== '') {
      lines.push(line('skipped', 'gpu in use', `${uuid} is not tried: ${use}`, 'drain the machine, and repeat'));
      continue;
    }
    const preferred: GpuDriver = byCdi.has(uuid) ? 'cdi' : 'nvidia';
    if (isFirst && preferred === 'nvidia')
      lines.push(line('skipped', 'gpu by cdi', 'Docker lists no GPU under its UUID'));
    const ways: readonly GpuDriver[] = isFirst && preferred === 'cdi' ? ['cdi', 'nvidia'] : [preferred];
    isFirst = false;
    for (const driver of ways) {
      signal.throwIfAborted();
      const needed = driver === preferred;
      const { line: found, container } = await openDevice(runtime, { image, uuid, driver, needed, labels: run.labels });
      // A trial that was interrupted found nothing out.
      signal.throwIfAborted();
      lines.push(found);
      if (container === undefined) continue;
      const cuda = await cudaLine(runtime, container, run.labels, signal);
      signal.throwIfAborted();
      lines.push(cuda);
      // The reload trial needs only the first device's containers.
      if (open.length === 0 || open[0]?.uuid === uuid) open.push(container);
      else await runtime.remove(container.dockerId);
    }
  }
  if (isFirst && offered.length > 0)
    lines.push(line('failed', 'gpu in use', 'no GPU was free to be tried', 'drain the machine, and repeat'));
  if (!reload) {
    lines.push(reloadNotAsked());
    return;
  }
  const own = new Set(open.map(({ dockerId }) => dockerId));
  const now = (await runtime.gpuContainers()).filter(({ dockerId }) => !own.has(dockerId));
  const refusal = reloadRefusal(now, mounted);
  signal.throwIfAborted();
  const reloaded = refusal === undefined ? await tryReload(runtime, open) : [refusal];
  signal.throwIfAborted();
  lines.push(...reloaded);
}

function deviceLine(row: GpuRow): Line {
  const recovery = row.recovery === undefined ? undefined : recoveryOf(row.recovery);
  const found = [
    `GPU ${row.index} ${row.uuid}`,
    `${row.name} = ${gpuModelOf(row.name, row.memoryMib)}`,
    row.memoryMib === undefined ? 'memory shared with the CPU' : `${row.memoryMib} MiB`,
    row.busId,
    `driver ${row.driver || 'unknown'}`,
    ...(row.migEnabled ? ['MIG on'] : []),
  ].join(', ');
  if (recovery === 'reset' || recovery === 'drain')
    return line(
      'failed',
      'device',
      `${found}: the driver asks for a recovery (${row.recovery})`,
      'drain the machine, then reset the GPU (sudo nvidia-smi --gpu-reset) or reboot',
    );
  return line('ok', 'device', found);
}

function processesLine(rows: readonly GpuRow[], processes: Processes): Line {
  const silent = rows.filter(({ uuid }) => !processes.has(uuid)).map(({ uuid }) => uuid);
  if (silent.length > 0)
    return line('failed', 'processes', `compute processes of ${silent.join(', ')} cannot be listed`, REMEDIES.error);
  const pids = new Set([...processes.values()].flat().map(({ pid }) => pid));
  return line('ok', 'processes', `compute processes are listed (${pids.size} now)`);
}

function migLine(rows: readonly GpuRow[], { found: slices, silent }: Slices): Line {
  const divided = rows.filter((row) => row.migEnabled);
  if (divided.length === 0) return line('ok', 'mig', 'off');
  if (silent.size > 0)
    return line(
      'failed',
      'mig',
      `\`nvidia-smi -L\` gives no slices of ${[...silent].join(', ')} although MIG is on`,
      REMEDIES.error,
    );
  const empty = divided.filter((row) => !slices.some((one) => one.parentUuid === row.uuid));
  if (empty.length > 0)
    return line(
      'warning',
      'mig',
      `on for ${empty.map(({ uuid }) => uuid).join(', ')}, and divided into nothing: it serves no work`,
      'divide it (sudo nvidia-smi mig -cgi <profile> -C), or turn MIG off (sudo nvidia-smi -mig 0); then: sudo systemctl restart nvidia-cdi-refresh',
    );
  const profiles = [...new Set(slices.map(({ profile }) => profile))].join(', ');
  return line('ok', 'mig', `${slices.length} slices (${profiles}) of ${divided.length} devices`);
}

/** Whether the driver's errors are visible here, and the errors since the host started. */
async function kernelLines(path: string): Promise<Line[]> {
  const ask = (...args: string[]): Promise<string> =>
    programOutput('journalctl', ['--dmesg', '--boot', '--output=cat', ...args], ASK_MS);
  const [direct, some, xids] = await Promise.all([
    open(path, 'r').then(
      (file) => file.close().then(() => ''),
      (error: unknown) => messageOf(error),
    ),
    ask('--lines=1'),
    ask('--grep=^NVRM: Xid', `--lines=${MOST_XIDS}`),
  ]);
  const check = 'kernel log';
  const seen =
    direct === '' || some !== ''
      ? line('ok', check, `Xid errors are seen, in ${direct === '' ? path : 'the journal'}`)
      : line(
          'warning',
          check,
          `neither ${path} (${direct}) nor the journal can be read: Xid errors are not seen`,
          'run this as root; the service reads the journal',
        );
  const bad = xids.split('\n').flatMap((text) => {
    const xid = parseXid(text);
    return xid !== undefined && meaningOf(xid.xid, 0, xid.text) !== 'note' ? [`Xid ${xid.xid} of ${xid.busId}`] : [];
  });
  if (bad.length === 0) return [seen];
  const found = `since the host started: ${[...new Set(bad)].slice(0, 5).join(', ')}`;
  return [
    seen,
    line('warning', 'xid', found, 'look them up in the catalogue of Xids; a GPU that has them again is to be replaced'),
  ];
}

async function versionOf(program: string): Promise<string> {
  const words = await programOutput(program, ['--version'], ASK_MS);
  return /\bv?(\d+\.\d+\.\d+[\w.+~-]*)/.exec(words)?.[1] ?? '';
}

async function hostFacts(): Promise<GpuReport['host']> {
  const text = await readFile(join('/etc', 'os-release'), 'utf8').catch(() => '');
  const processors = cpus();
  return {
    name: hostname(),
    system: /^PRETTY_NAME="?([^"\n]*)"?$/m.exec(text)?.[1] ?? 'unknown system',
    kernel: release(),
    processor: processors[0]?.model ?? '',
    cores: processors.length,
    memoryBytes: totalmem(),
  };
}
