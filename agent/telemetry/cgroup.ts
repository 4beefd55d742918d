// Parses the kernel's texts about a container: its control group, and the numbers there. Both layouts, v1 (one tree per
// controller) and v2 (one tree). Pure.

/** Paths of the files with a container's numbers. */
export interface CgroupFiles {
  readonly version: 1 | 2;
  readonly cpu: string;
  readonly memory: string;
  readonly memoryStat: string;
  readonly processes: string;
}

export interface CgroupTexts {
  readonly cpu: string;
  readonly memory: string;
  readonly memoryStat: string;
  readonly processes: string;
}

export interface CgroupNumbers {
  /** Processor time since the container began. */
  readonly cpuMicroseconds: number;
  /** Memory without the part that the kernel could drop at once: pages of files that were not touched lately. */
  readonly memoryBytes: number;
  readonly processes: number;
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
  if (memory !== undefined && cpu !== undefined && pids !== undefined) {
    if (memory === '/') return undefined;
    return {
      version: 1,
      cpu: `${root}/cpuacct${cpu}/cpuacct.usage`,
      memory: `${root}/memory${memory}/memory.usage_in_bytes`,
      memoryStat: `${root}/memory${memory}/memory.stat`,
      processes: `${root}/pids${pids}/pids.current`,
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
  };
}

export function cgroupNumbers(version: 1 | 2, texts: CgroupTexts): CgroupNumbers {
  const used = Number(texts.memory.trim()) || 0;
  const inactive = field(texts.memoryStat, version === 1 ? 'total_inactive_file' : 'inactive_file');
  return {
    cpuMicroseconds:
      version === 1 ? Math.round((Number(texts.cpu.trim()) || 0) / 1000) : field(texts.cpu, 'usage_usec'),
    memoryBytes: Math.max(0, used - inactive),
    processes: Number(texts.processes.trim()) || 0,
  };
}

/** The value of a line `name value`; 0 when there is none. */
function field(text: string, name: string): number {
  const from = text.startsWith(`${name} `) ? 0 : text.indexOf(`\n${name} `) + 1;
  if (from === 0 && !text.startsWith(`${name} `)) return 0;
  return Number.parseInt(text.slice(from + name.length + 1, from + name.length + 24), 10) || 0;
}

/** A line of `/proc/<pid>/net/dev`: the interface, received bytes, seven other counts, sent bytes. */
const INTERFACE = /^ *([^\s:]+): *(\d+)(?: +\d+){7} +(\d+)/gm;

/** Bytes received and sent by every interface but loopback, from `/proc/<pid>/net/dev`. */
export function networkBytes(netDev: string): { readonly received: number; readonly sent: number } {
  let received = 0;
  let sent = 0;
  for (const [, name, receivedHere, sentHere] of netDev.matchAll(INTERFACE)) {
    if (name === 'lo') continue;
    received += Number(receivedHere);
    sent += Number(sentHere);
  }
  return { received, sent };
}
