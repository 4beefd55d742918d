// Parses the kernel's texts about a container: its control group, and the numbers there. Both layouts, v1 (one tree per
// controller) and v2 (one tree). Pure.

/** Paths of the files with a container's numbers. */
export interface CgroupFiles {
  readonly version: 1 | 2;
  readonly cpu: string;
  readonly memory: string;
  readonly memoryStat: string;
  readonly processes: string;
  /** Files of bytes read and written, the preferred one first. A kernel may have none of them. */
  readonly io: readonly string[];
  /** Swapped bytes; null: `memoryStat` has them. A kernel may not have the file. */
  readonly swap: string | null;
  /** Ids of the processes. */
  readonly ids: string;
}

export interface CgroupTexts {
  readonly cpu: string;
  readonly memory: string;
  readonly memoryStat: string;
  readonly processes: string;
  /** Empty: the kernel does not tell. */
  readonly io: string;
  readonly swap: string;
}

export interface CgroupNumbers {
  /** Processor time since the container began. */
  readonly cpuMicroseconds: number;
  /** Memory without the part that the kernel could drop at once: pages of files that were not touched lately. */
  readonly memoryBytes: number;
  /** Anonymous and shared memory. */
  readonly rssBytes: number;
  readonly swapBytes: number;
  readonly processes: number;
  /** Bytes read from and written to block devices since the container began. */
  readonly readBytes: number;
  readonly writtenBytes: number;
}

/**
 * @param procCgroup - `/proc/<pid>/cgroup` of a process of the container
 * @param root - mount point of control groups
 * @returns undefined when the container has no control group of its own there
 */
export function cgroupFiles(procCgroup: string, root = '/sys/fs/cgroup'): CgroupFiles | undefined {
  const byController = new Map<string, string>();
  let unified: string | undefined;
  for (const line of procCgroup.split('\n')) {
    const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    if (controllers === undefined || path === undefined) continue;
    if (controllers === '') unified = path;
    else for (const controller of controllers.split(',')) byController.set(controller, path);
  }
  const memory = byController.get('memory');
  const cpu = byController.get('cpuacct');
  const pids = byController.get('pids');
  const blkio = byController.get('blkio');
  if (memory !== undefined && cpu !== undefined && pids !== undefined) {
    if (memory === '/') return undefined;
    return {
      version: 1,
      cpu: `${root}/cpuacct${cpu}/cpuacct.usage`,
      memory: `${root}/memory${memory}/memory.usage_in_bytes`,
      memoryStat: `${root}/memory${memory}/memory.stat`,
      processes: `${root}/pids${pids}/pids.current`,
      io: blkio === undefined ? [] : ['_recursive', ''].map((end) => `${root}/blkio${blkio}/${V1_IO}${end}`),
      swap: null,
      ids: `${root}/memory${memory}/cgroup.procs`,
    };
  }
  if (unified === undefined || unified === '/') return undefined;
  const dir = `${root}${unified}`;
  return {
    version: 2,
    cpu: `${dir}/cpu.stat`,
    memory: `${dir}/memory.current`,
    memoryStat: `${dir}/memory.stat`,
    processes: `${dir}/pids.current`,
    io: [`${dir}/io.stat`],
    swap: `${dir}/memory.swap.current`,
    ids: `${dir}/cgroup.procs`,
  };
}
const V1_IO = 'blkio.throttle.io_service_bytes';

export function cgroupNumbers(version: 1 | 2, texts: CgroupTexts): CgroupNumbers {
  const used = Number(texts.memory.trim()) || 0;
  const inStat = (name: string): number => field(texts.memoryStat, name);
  const inactive = inStat(version === 1 ? 'total_inactive_file' : 'inactive_file');
  const { readBytes, writtenBytes } = ioBytes(version, texts.io);
  return {
    cpuMicroseconds:
      version === 1 ? Math.round((Number(texts.cpu.trim()) || 0) / 1000) : field(texts.cpu, 'usage_usec'),
    memoryBytes: Math.max(0, used - inactive),
    rssBytes: version === 1 ? inStat('total_rss') + inStat('total_shmem') : inStat('anon') + inStat('shmem'),
    swapBytes: version === 1 ? inStat('total_swap') : Number(texts.swap.trim()) || 0,
    processes: Number(texts.processes.trim()) || 0,
    readBytes,
    writtenBytes,
  };
}

/** A line of `blkio.throttle.io_service_bytes`: the device, the direction, bytes. */
const V1_LINE = /^\d+:\d+ (Read|Write) (\d+)$/gm;
/** A part of a line of `io.stat`. */
const V2_PART = /\b(r|w)bytes=(\d+)/g;

/** Sums over all block devices. */
function ioBytes(version: 1 | 2, text: string): { readonly readBytes: number; readonly writtenBytes: number } {
  let readBytes = 0;
  let writtenBytes = 0;
  for (const [, direction, bytes] of text.matchAll(version === 1 ? V1_LINE : V2_PART)) {
    if (direction === 'Read' || direction === 'r') readBytes += Number(bytes);
    else writtenBytes += Number(bytes);
  }
  return { readBytes, writtenBytes };
}

/** The value of a line `name value`; 0 when there is none. */
function field(text: string, name: string): number {
  const from = text.startsWith(`${name} `) ? 0 : text.indexOf(`\n${name} `) + 1;
  if (from === 0 && !text.startsWith(`${name} `)) return 0;
  return Number.parseInt(text.slice(from + name.length + 1, from + name.length + 24), 10) || 0;
}

/** A line of `/proc/<pid>/net/dev`: the interface, received bytes and packets, six other counts, sent ones likewise. */
const INTERFACE = /^ *([^\s:]+): *(\d+) +(\d+)(?: +\d+){6} +(\d+) +(\d+)/gm;

export interface NetworkNumbers {
  readonly receivedBytes: number;
  readonly receivedPackets: number;
  readonly sentBytes: number;
  readonly sentPackets: number;
}

/** Traffic of every interface but loopback, from `/proc/<pid>/net/dev`. */
export function networkNumbers(netDev: string): NetworkNumbers {
  const sum = { receivedBytes: 0, receivedPackets: 0, sentBytes: 0, sentPackets: 0 };
  for (const [, name, receivedBytes, receivedPackets, sentBytes, sentPackets] of netDev.matchAll(INTERFACE)) {
    if (name === 'lo') continue;
    sum.receivedBytes += Number(receivedBytes);
    sum.receivedPackets += Number(receivedPackets);
    sum.sentBytes += Number(sentBytes);
    sum.sentPackets += Number(sentPackets);
  }
  return sum;
}

/** Address space of a process in bytes, from `/proc/<pid>/stat`. Its second field, the name, may hold anything. */
export function addressSpaceBytes(stat: string): number {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ', 21);
  return Number(fields[20]) || 0;
}

/** Ids in a `cgroup.procs`, at most so many. */
export const processIds = (text: string, most: number): readonly number[] =>
  text
    .split('\n', most)
    .map(Number)
    .filter((id) => id > 0);

export interface HostCpu {
  /** Ticks of all processors since the host started. */
  readonly busy: number;
  readonly total: number;
}

/** From `/proc/stat`. Waiting for a disk counts as idle; guests are counted within user time. */
export function hostCpu(procStat: string): HostCpu | undefined {
  const [line = ''] = procStat.split('\n', 1);
  if (!line.startsWith('cpu ')) return undefined;
  const ticks = line.trim().split(/ +/).slice(1, 9).map(Number);
  const total = ticks.reduce((sum, value) => sum + value, 0);
  return { busy: total - (ticks[3] ?? 0) - (ticks[4] ?? 0), total };
}

/** Used and total memory in bytes, from `/proc/meminfo`. */
export function hostMemory(memInfo: string): { readonly usedBytes: number; readonly totalBytes: number } | undefined {
  const kib = (name: string): number => Number(new RegExp(`^${name}: +(\\d+) kB$`, 'm').exec(memInfo)?.[1] ?? 0);
  const totalBytes = kib('MemTotal') * 1024;
  if (totalBytes === 0) return undefined;
  return { usedBytes: Math.max(0, totalBytes - kib('MemAvailable') * 1024), totalBytes };
}
