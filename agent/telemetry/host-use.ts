/**
 * Samples the use of the whole machine from the kernel's files: processor time since the sample before, and memory. The
 * disk's numbers come from the watch that reads them anyway.
 */
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import type { MachineSample } from '#shared/protocol/generated/messages.ts';
import { hostCpu, hostMemory } from './cgroup.ts';
import type { HostCpu } from './cgroup.ts';
import type { DiskReading } from './disks.ts';

export class HostUse {
  readonly #root: string;
  readonly #cores: number;
  #before: (HostCpu & { readonly atMs: number }) | undefined;

  /** @param root - root of the kernel's files, for tests */
  constructor(root = '/', cores = cpus().length || 1) {
    this.#root = root;
    this.#cores = cores;
  }

  /** @returns null: this is the first sample, or the files cannot be read */
  sample(disk: DiskReading | undefined, nowMs = performance.now()): MachineSample | null {
    const cpu = hostCpu(this.#read('stat'));
    const memory = hostMemory(this.#read('meminfo'));
    const before = this.#before;
    this.#before = cpu === undefined ? undefined : { ...cpu, atMs: nowMs };
    if (cpu === undefined || memory === undefined || before === undefined) return null;
    const ticks = cpu.total - before.total;
    const share = ticks <= 0 ? 0 : Math.min(1, Math.max(0, (cpu.busy - before.busy) / ticks));
    return {
      intervalMs: Math.max(1, Math.round(nowMs - before.atMs)),
      cpuMillicores: Math.round(share * this.#cores * 1000),
      cpuCores: this.#cores,
      memoryUsedBytes: memory.usedBytes,
      memoryTotalBytes: memory.totalBytes,
      diskUsedBytes: disk === undefined ? 0 : Math.max(0, disk.usableBytes - disk.freeBytes),
      diskTotalBytes: disk?.usableBytes ?? 0,
    };
  }

  #read(file: string): string {
    try {
      return readFileSync(join(this.#root, 'proc', file), 'latin1');
    } catch {
      return '';
    }
  }
}
