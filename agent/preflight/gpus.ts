// The condition of this host's GPUs, and their needs beside a driver. The check only reads: no setting changes, and no
// program runs on a device. Warnings, since other work runs here; a toolkit that lets images run code as root fails.
import { open, readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '#shared/errors.ts';
import type { GpuCondition } from '../devices/gpu-condition.ts';
import { KMSG } from '../devices/kernel-log.ts';
import { programOutput } from './program-output.ts';
import type { Finding } from './finding.ts';
import { failed, ok, warning } from './finding.ts';

/**
 * Vulnerabilities of the toolkit by which a container may take over its host, with the first fixed version of each,
 * oldest first.
 * Source: NVIDIA's security bulletins 5582 (September 2024), 5659 (July 2025) and 5850 (June 2026); for CVE-2025-23359
 * the page "Security Considerations" of the GPU Operator.
 */
const TOOLKIT_FAULTS = [
  { cve: 'CVE-2024-0132', mended: [1, 16, 2] },
  { cve: 'CVE-2025-23359', mended: [1, 17, 4] },
  { cve: 'CVE-2025-23266', mended: [1, 17, 8] },
  { cve: 'CVE-2026-24260', mended: [1, 19, 1] },
] as const;
/** The first version in whose hooks no library of an image (`LD_PRELOAD`) runs as the host's root: CVE-2025-23266. */
const FIRST_WITHOUT_IMAGES = [1, 17, 8] as const;
const ASK_MS = 5000;
const SWITCHES = '/proc/driver/nvidia-nvswitch/devices';
/** The program's name as the kernel cuts it. */
const FABRIC_MANAGER = 'nv-fabricmanager'.slice(0, 15);

/** Facts of the host's switches and their manager. */
export interface Fabric {
  readonly switches: number;
  readonly managerRuns: boolean;
}

/** @param root - root of the files, for tests */
export async function readFabric(root = '/'): Promise<Fabric> {
  const switches = await readdir(join(root, SWITCHES)).catch((): string[] => []);
  if (switches.length === 0) return { switches: 0, managerRuns: false };
  const pids = (await readdir(join(root, '/proc')).catch((): string[] => [])).filter((name) => /^\d+$/.test(name));
  const names = await Promise.all(
    pids.map((pid) => readFile(join(root, '/proc', pid, 'comm'), 'utf8').catch(() => '')),
  );
  return { switches: switches.length, managerRuns: names.some((name) => name.trim() === FABRIC_MANAGER) };
}

/**
 * Whether errors that GPU drivers write to the kernel's log can be seen by this user. The agent itself has the
 * condition KernelLogUnread.
 * @param newest - the journal's newest line of the kernel; empty: none
 */
export async function kernelLogFinding(
  path: string = KMSG,
  newest: () => Promise<string> = () =>
    programOutput('journalctl', ['--dmesg', '--boot', '--output=cat', '--lines=1'], ASK_MS),
): Promise<Finding> {
  const check = 'kernel log';
  const problem = await open(path, 'r').then(
    (file) => file.close().then(() => ''),
    (error: unknown) => messageOf(error),
  );
  if (problem === '') return ok(check, `read from ${path}`);
  if ((await newest()) !== '') return ok(check, 'read from the journal');
  return warning(
    check,
    `neither ${path} (${problem}) nor the journal gives a line of the kernel: errors of GPUs (Xid) are not seen`,
    'run this as root; `journalctl --dmesg --lines=1` must print a line (ReadKMsg= of journald)',
  );
}

/** @param gpus - undefined: the tool reported none */
export function conditionFindings(gpus: readonly GpuCondition[] | undefined, fabric: Fabric): Finding[] {
  if (gpus === undefined) return [warning('gpu condition', 'nvidia-smi does not tell', 'make `nvidia-smi -q` work')];
  return [persistence(gpus), memory(gpus), clocks(gpus), lanes(gpus), ...fabricFinding(gpus, fabric)];
}

const named = (gpus: readonly GpuCondition[]): string => {
  const [first] = gpus;
  return gpus.length === 1 && first !== undefined ? first.uuid : `${gpus.length} GPUs`;
};

function persistence(gpus: readonly GpuCondition[]): Finding {
  const off = gpus.filter((gpu) => gpu.persistence === false);
  if (off.length === 0) return ok('gpu persistence', 'on');
  return warning(
    'gpu persistence',
    `off for ${named(off)}: the driver starts an idle GPU anew for each look, which may take longer than a look may`,
    'until the next boot: sudo nvidia-smi -pm 1; for good: start nvidia-persistenced without --no-persistence-mode, which Ubuntu gives it (docs/gpus.md)',
  );
}

function memory(gpus: readonly GpuCondition[]): Finding {
  const check = 'gpu memory';
  const failed = gpus.filter((gpu) => gpu.remapFailed);
  if (failed.length > 0)
    return warning(check, `${named(failed)}: broken rows cannot be remapped any more`, 'have it replaced');
  const pending = gpus.filter((gpu) => gpu.remapPending);
  if (pending.length > 0)
    return warning(
      check,
      `${named(pending)}: broken memory waits for a reset to be remapped`,
      'drain the machine, then: sudo nvidia-smi --gpu-reset, or reboot',
    );
  const wrong = gpus.filter((gpu) => gpu.uncorrected > 0);
  if (wrong.length > 0)
    return warning(
      check,
      `${named(wrong)}: ${wrong.reduce((sum, gpu) => sum + gpu.uncorrected, 0)} memory errors that were not corrected since the driver was loaded`,
      'drain the machine and reset the GPU; have it replaced when they come again',
    );
  const blind = gpus.filter((gpu) => gpu.ecc === false);
  if (blind.length > 0)
    return warning(
      check,
      `ECC is off for ${named(blind)}: wrong bits are not noticed`,
      'sudo nvidia-smi --ecc-config=1, and reboot',
    );
  return ok(check, gpus.some((gpu) => gpu.ecc === true) ? 'ECC on, no errors' : 'no errors told');
}

function clocks(gpus: readonly GpuCondition[]): Finding {
  const slow = gpus.filter((gpu) => gpu.slowedBy !== '');
  if (slow.length === 0) return ok('gpu clocks', 'not held down');
  const why = [...new Set(slow.map((gpu) => gpu.slowedBy))].join(', ');
  return warning('gpu clocks', `${named(slow)}: held down by ${why}`, 'look at the cooling and the power of the host');
}

function lanes(gpus: readonly GpuCondition[]): Finding {
  const narrow = gpus.filter(({ lanes: link }) => link !== undefined && link.now < link.most);
  if (narrow.length === 0) return ok('gpu pcie', 'all lanes');
  const widths = [...new Set(narrow.map(({ lanes: link }) => `${link?.now} of ${link?.most} lanes`))].join(', ');
  return warning('gpu pcie', `${named(narrow)}: ${widths}`, 'look at its seating, its riser and the slot');
}

/**
 * GPUs behind NVSwitches run no CUDA program before the manager has set up the fabric (error 802), which would look
 * like the program's fault.
 */
function fabricFinding(gpus: readonly GpuCondition[], { switches, managerRuns }: Fabric): Finding[] {
  const check = 'fabric manager';
  const joined = gpus.filter((gpu) => gpu.fabric !== '');
  const apart = joined.filter((gpu) => gpu.fabric !== 'Completed');
  if (switches === 0 && apart.length === 0) return [];
  const remedy =
    "install nvidia-fabricmanager in the driver's version, then: sudo systemctl enable --now nvidia-fabricmanager";
  if (apart.length > 0)
    return [
      warning(
        check,
        `${named(apart)}: fabric state ${apart[0]?.fabric}: CUDA programs there fail with error 802`,
        remedy,
      ),
    ];
  if (switches > 0 && !managerRuns)
    return [
      warning(
        check,
        `${switches} NVSwitches, and no nv-fabricmanager runs: CUDA programs may fail with error 802`,
        remedy,
      ),
    ];
  return [ok(check, `${switches} NVSwitches`)];
}

/**
 * The toolkit's version; nothing where it is not installed: the check `gpu` says so.
 * @param words - output of `nvidia-ctk --version`
 */
export async function toolkitFindings(
  words: () => Promise<string> = () => programOutput('nvidia-ctk', ['--version'], ASK_MS),
): Promise<Finding[]> {
  const match = /version (\d+)\.(\d+)\.(\d+)/.exec(await words());
  if (match === null) return [];
  const version = match.slice(1, 4).map(Number);
  const found = `NVIDIA Container Toolkit ${version.join('.')}`;
  const faults = TOOLKIT_FAULTS.filter(({ mended }) => isBefore(version, mended));
  const newest = faults.at(-1);
  if (newest === undefined) return [ok('gpu toolkit', found)];
  const finding = isBefore(version, FIRST_WITHOUT_IMAGES) ? failed : warning;
  return [
    finding(
      'gpu toolkit',
      `${found}: a container may take over the host (${faults.map(({ cve }) => cve).join(', ')})`,
      `install ${newest.mended.join('.')} or newer`,
    ),
  ];
}

/** The toolkit's version; empty: it is not installed. */
export async function toolkitVersion(): Promise<string> {
  return /version (\S+)/.exec(await programOutput('nvidia-ctk', ['--version'], ASK_MS))?.[1]?.slice(0, 32) ?? '';
}

function isBefore(version: readonly number[], other: readonly number[]): boolean {
  const differs = other.findIndex((number, index) => version[index] !== number);
  return differs >= 0 && (version[differs] ?? 0) < (other[differs] ?? 0);
}
