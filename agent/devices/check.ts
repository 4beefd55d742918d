/** What `npm run check-gpu` does on a GPU host: the same tool, parser, and device request as the agent's, each said in a line, with what to do about a failure. It leases nothing and leaves nothing. */
import { randomBytes } from 'node:crypto';
import { open } from 'node:fs/promises';
import { gpuModelOf } from '#shared/domain/gpus.ts';
import { messageOf } from '#shared/errors.ts';
import { cdiGpus } from '../containers/cdi.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { EngineError } from '../containers/runtime.ts';
import { KMSG } from './kernel-log.ts';
import type { NvidiaSmi } from './nvidia-smi.ts';
import type { GpuRow, ProbeFailure } from './parse.ts';

/** Also what a machine without any GPU is told by. */
export const CHECK_EXIT = { ok: 0, failed: 1, noGpu: 3 } as const;

const EXEC_MS = 30_000;
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
  readonly runtime: ContainerRuntime;
  readonly image: string;
  readonly say: (line: string) => void;
  readonly kernelLog?: string;
}

/** @returns the exit code */
export async function checkGpus({ smi, runtime, image, say, kernelLog = KMSG }: CheckParts): Promise<number> {
  const listing = await smi.list();
  if (listing.kind === 'unknown_field') throw new Error('the tool was asked for the same field again');
  if (listing.kind === 'failed') {
    if (listing.reason === 'not_found') return noGpu(say, `${listing.text}: ${REMEDIES.not_found}`);
    say(`FAILED  nvidia-smi: ${listing.text || listing.reason}`);
    say(`        ${REMEDIES[listing.reason]}`);
    return CHECK_EXIT.failed;
  }
  if (listing.rows.length === 0 && listing.broken.length === 0 && listing.unreadable === 0)
    return noGpu(say, 'the driver is there and finds no device');
  let failed = false;
  const fail = (line: string, step: string): void => {
    failed = true;
    say(`FAILED  ${line}`);
    say(`        ${step}`);
  };
  for (const row of listing.rows) say(`ok      ${described(row)}`);
  for (const busId of listing.broken) fail(`the GPU at ${busId} does not answer`, REMEDIES.off_bus);
  if (listing.unreadable > 0) fail(`${listing.unreadable} rows of nvidia-smi cannot be read`, REMEDIES.unparsable);

  const slices = listing.rows.some((row) => row.migEnabled) ? await smi.slices() : [];
  if (slices === undefined) fail('`nvidia-smi -L` gives no slices although MIG is on', REMEDIES.error);
  for (const slice of slices ?? []) say(`ok      slice ${slice.profile} ${slice.uuid} of ${slice.parentUuid}`);

  const processes = await smi.processes();
  if (processes === undefined) fail('compute processes cannot be listed', REMEDIES.error);
  else say(`ok      compute processes are listed (${processes.length} now)`);

  await open(kernelLog, 'r').then(
    async (file) => {
      await file.close();
      say(`ok      ${kernelLog} can be read: Xid errors are seen`);
    },
    (error: unknown) =>
      say(`note    ${kernelLog} cannot be read (${messageOf(error)}): Xid errors are read from the journal`),
  );

  const uuid = slices?.[0]?.uuid ?? listing.rows.find((row) => !row.migEnabled)?.uuid;
  if (uuid !== undefined) await checkContainer(uuid, { runtime, image, say, fail });
  say(
    failed
      ? 'A check FAILED: this host does not serve GPUs as it is.'
      : 'All checks passed: this host serves its GPUs.',
  );
  return failed ? CHECK_EXIT.failed : CHECK_EXIT.ok;
}

function noGpu(say: (line: string) => void, why: string): number {
  say(`NO GPU HERE: ${why}`);
  say(`Nothing was checked. (Exit code ${CHECK_EXIT.noGpu}; run this on a host with an NVIDIA GPU.)`);
  return CHECK_EXIT.noGpu;
}

const described = (row: GpuRow): string =>
  [
    `GPU ${row.index} ${row.uuid}`,
    `${row.name} = ${gpuModelOf(row.name, row.memoryMib)}`,
    row.memoryMib === undefined ? 'memory shared with the CPU' : `${row.memoryMib} MiB`,
    row.busId,
    `driver ${row.driver || 'unknown'}`,
    ...(row.migEnabled ? ['MIG on'] : []),
  ].join(', ');

/** One device is passed to a container, which sees that one and no other. */
async function checkContainer(
  uuid: string,
  parts: Pick<CheckParts, 'runtime' | 'image' | 'say'> & { readonly fail: (line: string, step: string) => void },
): Promise<void> {
  const { runtime, image, say, fail } = parts;
  let dockerId: string | undefined;
  try {
    const driver = (await cdiGpus(await runtime.info())).has(uuid) ? 'cdi' : 'nvidia';
    dockerId = await runtime.create({
      name: `longshore-check-gpu-${randomBytes(4).toString('hex')}`,
      image,
      entrypoint: ['sleep', '120'],
      workingDir: '/',
      env: [
        `NVIDIA_VISIBLE_DEVICES=${driver === 'cdi' ? 'void' : uuid}`,
        'NVIDIA_DRIVER_CAPABILITIES=compute,utility,video',
      ],
      labels: {},
      mounts: [],
      network: 'none',
      memoryBytes: 256 * 1024 ** 2,
      cpuMillicores: 500,
      gpus: { driver, uuids: [uuid], capabilities: ['compute', 'utility', 'video'] },
    });
    await runtime.start(dockerId);
    const passed = (await runtime.inspect(dockerId))?.gpuUuids ?? [];
    const { exitCode, output } = await runtime.exec(dockerId, ['nvidia-smi', '-L'], EXEC_MS);
    const seen = [...output.matchAll(/UUID: ((?:GPU|MIG)-[^)\s]+)/g)].map((match) => match[1] ?? '');
    const others = seen.filter((one) => one !== uuid && !uuid.startsWith('MIG-'));
    if (passed.join() !== uuid) fail(`the engine says that it passes ${passed.join() || 'nothing'}`, REMEDIES.error);
    else if (exitCode !== 0 || !seen.includes(uuid))
      fail(`in the container nvidia-smi says: ${output.trim() || `exit code ${exitCode}`}`, TOOLKIT);
    else if (others.length > 0) fail(`the container sees ${others.join(', ')}, too`, TOOLKIT);
    else
      say(
        `ok      a container of ${image} was given ${uuid} ${driver === 'cdi' ? 'by CDI' : "by NVIDIA's hook"} and sees it alone`,
      );
  } catch (error) {
    const failure = error instanceof EngineError ? error.failure : undefined;
    if (failure === 'no_gpu_support' || failure === 'gpu_refused') fail(messageOf(error), TOOLKIT);
    else if (failure === 'no_such_image') fail(messageOf(error), `\`docker pull ${image}\`, or name another image`);
    else fail(messageOf(error), 'look at the Docker Engine (`systemctl status docker`) and its log');
  } finally {
    if (dockerId !== undefined) await runtime.remove(dockerId);
  }
}

const TOOLKIT =
  "install NVIDIA's container toolkit (nvidia-container-toolkit) and restart the Docker Engine; then `docker run --rm --gpus all <image> nvidia-smi` works";
