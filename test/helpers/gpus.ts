/**
 * GPUs for tests on machines that have none: a stand-in for NVIDIA's tool, and the hook through which an engine passes
 * devices. Everything between the two edges is the real thing.
 */
import { appendFileSync, chmodSync, renameSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { ToolOutput } from '../../agent/devices/parse.ts';
import type { AskTool } from '../../agent/devices/smi-program.ts';
import { fakeCuda } from './fake-cuda.ts';
import type { HostOptions, SimulatedHost } from './hosts/host.ts';

const STAND_IN = resolve(import.meta.dirname, 'nvidia-smi.mjs');
const HOOK = resolve(import.meta.dirname, 'gpu-hook.mjs');

/** A GPU as the tool shows it, keyed by the tool's own fields. */
export type FakeGpu = Readonly<Record<string, unknown>> & { readonly uuid: string };

export interface FakeDriver {
  readonly gpus: readonly FakeGpu[];
  readonly processes?: readonly { readonly gpu_uuid: string; readonly pid: number }[];
  readonly unknownFields?: readonly string[];
  /** Groups of indexes of GPUs that are linked by NVLink, each with each. */
  readonly links?: readonly (readonly number[])[];
  readonly hang?: boolean;
  readonly fail?: { readonly exitCode: number; readonly stdout?: string; readonly stderr?: string };
  /** Bus id of a GPU because of which the tool fails when it is asked for all. */
  readonly brokenAll?: string;
  /** UUIDs of GPUs at which the tool hangs, when it is asked for them or for all. */
  readonly hangOne?: readonly string[];
}

const { answer } = (await import(resolve(import.meta.dirname, 'nvidia-smi-answers.mjs'))) as {
  answer: (world: FakeDriver, args: readonly string[]) => ToolOutput | undefined;
};

/**
 * The tool without a process, for tests of many looks. Where it hangs, the deadline passes at once.
 * @param asked - called with each question
 */
export const askFake =
  (world: () => FakeDriver, asked: (args: readonly string[]) => void = () => undefined): AskTool =>
  (args, id) => {
    const all = id === '' ? args : [`--id=${id}`, ...args];
    asked(all);
    const end = answer(world(), all);
    return Promise.resolve(end === undefined ? { kind: 'timeout' } : { kind: 'done', ...end });
  };

/**
 * The stand-in for `journalctl`, in a directory for the PATH. Prints the entries of the file beside it that follow the
 * given cursor, then those added later. With `--follow` it prints only the last ten of the present entries, unless an
 * option says otherwise. Each call's arguments are one line of `calls`. A cursor that begins with `bad` is refused.
 */
export class FakeJournal {
  readonly directory: string;
  readonly calls: string;
  readonly #entries: string;
  #count = 0;

  constructor(directory: string) {
    this.directory = directory;
    this.calls = join(directory, 'journalctl.calls');
    this.#entries = join(directory, 'journal.jsonl');
    writeFileSync(this.#entries, '');
    writeFileSync(this.calls, '');
    const path = join(directory, 'journalctl');
    const script = `#!/bin/sh
echo "$*" >> '${this.calls}'
from=-10
follow=
for one in "$@"; do case "$one" in
  --follow) follow=-f ;;
  --no-tail) from=+1 ;;
  --lines=*) from=-\${one##*=} ;;
esac; done
for one in "$@"; do case "$one" in
  --after-cursor=bad*) exit 1 ;;
  --after-cursor=*) from=+$((\${one##*=c} + 1)) ;;
esac; done
exec tail -n "$from" $follow '${this.#entries}'
`;
    writeFileSync(path, script);
    chmodSync(path, 0o755);
  }

  /** @param message - bytes, where it is not UTF-8 */
  add(message: string | readonly number[], atMs = 10 ** 14): void {
    this.#count += 1;
    const entry = { __CURSOR: `c${this.#count}`, __MONOTONIC_TIMESTAMP: String(atMs * 1000), MESSAGE: message };
    appendFileSync(this.#entries, `${JSON.stringify(entry)}\n`);
  }
}

/** `GPU-…` with a number in it that tests can read. */
export const gpuUuid = (index: number): string => `GPU-00000000-0000-4000-8000-${String(index).padStart(12, '0')}`;

export function aGpu(index: number, facts: Readonly<Record<string, unknown>> = {}): FakeGpu {
  const bus = (0x1b + index).toString(16).toUpperCase().padStart(2, '0');
  return {
    uuid: gpuUuid(index),
    name: 'NVIDIA H100 80GB HBM3',
    'memory.total': 81_559,
    'memory.used': 1,
    'utilization.gpu': 0,
    'temperature.gpu': 31,
    'power.draw': 68.5,
    driver_version: '580.126.09',
    'mig.mode.current': 'Disabled',
    'pci.bus_id': `00000000:${bus}:00.0`,
    gpu_recovery_action: 'None',
    ...facts,
  };
}

/** A driver whose answers a test changes. */
export class FakeNvidia {
  /** Value of LONGSHORE_NVIDIA_SMI. */
  readonly tool: string;
  /** Read as /dev/kmsg is. */
  readonly kernelLog: string;
  /** A file with a line for each time that the tool ran: its arguments. */
  readonly calls: string;
  readonly #world: string;
  #sequence = 0;
  now: FakeDriver;

  constructor(directory: string, driver: FakeDriver) {
    this.tool = join(directory, 'nvidia-smi');
    this.kernelLog = join(directory, 'kmsg');
    this.calls = join(directory, 'nvidia-smi.calls');
    this.#world = join(directory, 'gpus.json');
    this.now = driver;
    this.is(driver);
    writeFileSync(this.kernelLog, '');
    writeFileSync(this.calls, '');
    writeFileSync(
      this.tool,
      `#!/bin/sh\necho "$*" >> '${this.calls}'\nexec '${process.execPath}' '${STAND_IN}' '${this.#world}' "$@"\n`,
    );
    chmodSync(this.tool, 0o755);
  }

  is(changes: Partial<FakeDriver>): void {
    this.now = { ...this.now, ...changes };
    writeFileSync(`${this.#world}.new`, JSON.stringify(this.now));
    renameSync(`${this.#world}.new`, this.#world);
  }

  /**
   * The driver writes an error of that device to the kernel's log. @param
   * within - suffix of the device's address: ` GPU-I:07` of a MIG slice
   */
  xid(index: number, xid: number, text = 'pid=1234, name=python3', within = ''): void {
    const id = this.now.gpus[index]?.['pci.bus_id'];
    const bus = typeof id === 'string' ? id.toLowerCase().slice(4, -2) : '';
    this.line(`NVRM: Xid (PCI:${bus}${within}): ${xid}, ${text}`);
  }

  /** A line of the kernel's log. */
  line(text: string): void {
    this.#sequence += 1;
    // The time stamp lies far beyond any uptime of this host.
    appendFileSync(this.kernelLog, `4,${this.#sequence},${10 ** 17},-;${text}\n`);
  }
}

/**
 * A host whose engine passes GPUs to containers: the engine has
 * the driver because it finds the hook on its path when it starts.
 */
export const gpuHost = (): HostOptions => ({
  programs: {
    'nvidia-container-runtime-hook': `#!/bin/sh\nexec '${process.execPath}' '${HOOK}' '${fakeCuda()}' "\${0%/*}/cuda.json"\n`,
  },
});

/**
 * Sets the outcome of CUDA programs on that host's devices from now on, by
 * UUID: see fake-cuda.c, or `refused` by the toolkit. Devices not named work.
 */
export function cudaDoes(host: SimulatedHost, does: Readonly<Record<string, string>>): void {
  const path = join(host.directory, 'bin', 'cuda.json');
  writeFileSync(`${path}.new`, JSON.stringify(does));
  renameSync(`${path}.new`, path);
}
