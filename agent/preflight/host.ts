// The host's side of an agent's needs besides an engine: writable places, a free port, drivers. Read-only but for one
// probe file in the state directory.
import { access, constants, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { splitAddress } from '#shared/address.ts';
import { madeBaseImage, madeBaseVersion } from '#shared/domain/built-images.ts';
import { registryOf } from '#shared/domain/image-reference.ts';
import { messageOf } from '#shared/errors.ts';
import { hasCode, lockStateDir, prepareStateDir } from '../durable.ts';
import type { Listing } from '../devices/parse.ts';
import { readPciGpus } from '../devices/pci.ts';
import { cdiGpus } from '../containers/cdi.ts';
import type { EngineInfo } from '../containers/runtime.ts';
import type { AgentConfig } from '../config.ts';
import { imagesRoot } from '../images/images-root.ts';
import { MIN_FREE_INODES_RATIO, otherMinFreeRatio, readDisk } from '../telemetry/disks.ts';
import { volumeHomes } from '../volumes/open.ts';
import type { Finding } from './finding.ts';
import { failed, ok, warning } from './finding.ts';

export interface StateFinding extends Finding {
  /** An agent has the directory now, and rightly holds its port. */
  readonly inUse: boolean;
}

/** Whether the agent can store its state. @param isAgent - the caller is the agent that has the lock */
export async function stateFinding(stateDir: string, isAgent: boolean): Promise<StateFinding> {
  try {
    const at = await existing(stateDir);
    if (at !== stateDir) {
      // The directory is not created here: the caller may be another user than the agent's.
      await access(at, constants.W_OK);
      return { ...ok('state', `${stateDir} is not there yet, and can be made`), inUse: false };
    }
    const real = await prepareStateDir(stateDir);
    const { mode } = await stat(real);
    let inUse = isAgent;
    if (!isAgent) {
      try {
        await (
          await lockStateDir(real)
        )();
      } catch (error) {
        if (!(error instanceof Error && 'code' in error && error.code === 'state_in_use')) throw error;
        inUse = true;
      }
    }
    if ((mode & 0o077) !== 0)
      return {
        ...failed('state', `${real} can be read by others (mode ${(mode & 0o777).toString(8)})`, `chmod 700 ${real}`),
        inUse,
      };
    return { ...ok('state', `${real}${inUse ? ', an agent runs on it' : ''}`), inUse };
  } catch (error) {
    return { ...failed('state', messageOf(error), 'set LONGSHORE_DATA_DIR to a directory of this user'), inUse: false };
  }
}

/**
 * Free space and inodes of the disks that images, the agent and volumes fill: those whose shortage is DiskPressure.
 * @param config - the settings of the agent
 */
export async function diskFindings(
  config: AgentConfig,
  stateDir: string,
  info: EngineInfo | undefined,
): Promise<Finding[]> {
  const forImages = config.LONGSHORE_MIN_FREE_DISK_PERCENT / 100;
  const least = otherMinFreeRatio(forImages);
  const { volumes, cache } = volumeHomes(config);
  const places = [
    { check: 'disk', path: stateDir, least },
    { check: 'disk of volumes', path: volumes, least },
    ...(cache === undefined ? [] : [{ check: 'disk of caches', path: cache, least }]),
    ...(info === undefined ? [] : [{ check: 'disk of images', path: await imagesRoot(info), least: forImages }]),
  ];
  return await Promise.all(places.map(diskFinding));
}

async function diskFinding({
  check,
  path,
  least,
}: {
  readonly check: string;
  readonly path: string;
  readonly least: number;
}): Promise<Finding> {
  const at = await existing(path).catch((error: unknown) => error);
  if (typeof at !== 'string') return failed(check, messageOf(at), 'name a directory that can be made there');
  const { freeBytes, usableBytes, totalBytes, freeInodesRatio } = await readDisk(at);
  const share = (ratio: number): string => ratio.toLocaleString('en', { style: 'percent' });
  const text = `${share(freeBytes / usableBytes)} of ${Math.round(totalBytes / 1e9)} GB free at ${path}`;
  if (freeBytes < usableBytes * least)
    return failed(check, text, `make room: below ${share(least)} nothing new is placed here`);
  if (freeInodesRatio < MIN_FREE_INODES_RATIO)
    return failed(
      check,
      `${text}, and ${share(freeInodesRatio)} of the inodes`,
      `remove small files, or make the file system anew: below ${share(MIN_FREE_INODES_RATIO)} nothing new is placed here`,
    );
  return ok(check, text);
}

/** The nearest existing directory above that this user may read. */
async function existing(path: string): Promise<string> {
  for (let at = path; ; at = dirname(at)) {
    const found = await stat(at).catch((error: unknown) => {
      if (at === dirname(at) || !hasCode(error, 'ENOENT', 'ENOTDIR')) throw error;
    });
    if (found?.isDirectory() === true) return at;
    if (found !== undefined) throw new Error(`${at} is no directory`);
  }
}

/** Whether the metrics page can listen. */
export async function portFinding(address: string, inUse: boolean): Promise<Finding> {
  const { host, port } = splitAddress(address);
  if (inUse || port === 0) return ok('metrics port', address);
  const error = await new Promise<unknown>((resolve) => {
    const server = createServer();
    server.once('error', resolve);
    server.listen(port, host, () => server.close(() => resolve(undefined)));
  });
  if (error === undefined) return ok('metrics port', `${address} is free`);
  return failed(
    'metrics port',
    hasCode(error, 'EADDRINUSE') ? `${address} is taken by another program` : `${address}: ${messageOf(error)}`,
    'stop that program, or set LONGSHORE_AGENT_METRICS_ADDRESS to a free one',
  );
}

/**
 * GPUs, their driver and the engine's way to pass them. Never worse than a warning: work without a GPU runs here all
 * the same.
 */
export async function gpuFinding(listing: Listing, info: EngineInfo | undefined): Promise<Finding> {
  const check = 'gpu';
  if (listing.kind === 'listed' && listing.rows.length > 0) {
    const found = `${listing.rows.length} x ${listing.rows[0]?.name ?? ''}`;
    const inCdi = info === undefined ? new Set<string>() : await cdiGpus(info);
    const hasUuids = [...inCdi].some((name) => /^(GPU|MIG)-/.test(name));
    if (info === undefined || hasUuids || info.nvidia || (await onPath('nvidia-container-runtime-hook')))
      return ok(check, hasUuids ? `${found}, by CDI` : found);
    if (inCdi.size > 0)
      return warning(
        check,
        `${found}, and CDI knows none of them by its UUID`,
        'name them so: sudo nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml',
      );
    return warning(
      check,
      `${found}, and Docker shows no way to pass them to containers`,
      'install the NVIDIA Container Toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker',
    );
  }
  const devices = (await readPciGpus()).length;
  if (listing.kind !== 'failed' || listing.reason === 'not_found')
    return devices === 0
      ? ok(check, 'none')
      : warning(
          check,
          `${devices} NVIDIA device${devices > 1 ? 's' : ''}, and no driver that shows ${devices > 1 ? 'them' : 'it'}`,
          'install the NVIDIA driver (nvidia-smi must list the GPUs), and reboot after an upgrade of it',
        );
  return warning(
    check,
    `nvidia-smi: ${listing.text}`,
    'make `nvidia-smi` work; after an upgrade of the driver, reboot',
  );
}

async function onPath(program: string): Promise<boolean> {
  for (const folder of [...(process.env['PATH'] ?? '').split(':'), '/usr/bin', '/usr/local/bin'])
    if (
      await access(join(folder, program), constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return true;
  return false;
}

/**
 * Whether the base image is available, which the first container needs.
 * @param noAnswer - the registry's message instead of the image, asked without credentials; empty: it would give the
 * image
 */
export function imageFinding(image: string, present: boolean, noAnswer: string): Finding {
  if (present) return ok('base image', image);
  if (noAnswer === '')
    return {
      ...ok('base image', `${image} is not here yet`),
      remedy: `it is pulled at the first start; to have it now: docker pull ${image}`,
    };
  return warning(
    'base image',
    `${image} is not here, and registry ${registryOf(image)} does not give it: ${noAnswer}`,
    'set LONGSHORE_BASE_IMAGE to an image with a Python that this machine has or can pull ({version} in it stands for the version), ' +
      `on Debian to ${madeBaseImage('{version}')}, which the machine makes from packages, or load this one: docker load`,
  );
}

/**
 * Whether this machine can make a base image that is not here.
 * @param pythons - versions that packages of the machine's sources have
 */
export function madeImageFinding(image: string, pythons: readonly string[]): Finding {
  if (pythons.includes(madeBaseVersion(image) ?? ''))
    return {
      ...ok('base image', `${image} is not here yet`),
      remedy: 'it is made from packages of Debian at the first start, which takes about a minute',
    };
  return warning(
    'base image',
    `${image} is not here, and this machine makes ${pythons.length === 0 ? 'none' : `those of Python ${pythons.join(', ')} alone`}`,
    'set LONGSHORE_DEFAULT_PYTHON to one that it makes, or LONGSHORE_BASE_IMAGE to an image that it has or can pull, or load this one: docker load',
  );
}
