/**
 * The mount helper as a process: it alone has the right to mount, and its unit is its own. Called by the command line
 * and by the unit's program. A stop leaves mounts to the next helper, so that containers keep theirs; `longshore up`
 * asks for their end.
 */
import { access, chmod, constants, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { splitAddress } from '#shared/address.ts';
import { StartupError, messageOf } from '#shared/errors.ts';
import { createLog } from '#shared/log.ts';
import { takeServiceManager } from '#shared/service-manager.ts';
import { MOUNT_SOCKET } from '../volumes/mount-messages.ts';
import { loadMountsConfig, rulesOf, volumesStore } from './config.ts';
import { lookAtProgram } from './daemon.ts';
import { Guard } from './guard.ts';
import { Mounts } from './mounts.ts';
import { serveMounts } from './server.ts';

/**
 * Runs until SIGTERM or SIGINT. A parent receives `{kind: 'ready'}` over IPC, and may send `{kind: 'stop', mounts:
 * 'keep' | 'end'}`. @throws StartupError when it cannot start
 */
export async function runMounts(env: Readonly<Record<string, string | undefined>>): Promise<void> {
  const manager = takeServiceManager(process.env, () => log);
  const config = loadMountsConfig(env);
  const log = createLog({ name: 'mounts', level: config.LONGSHORE_LOG_LEVEL });
  const stopped = Promise.withResolvers<boolean>();
  const onSignal = (): void => stopped.resolve(false);
  const onMessage = (message: unknown): void => {
    if (typeof message !== 'object' || message === null || !('kind' in message) || message.kind !== 'stop') return;
    stopped.resolve('mounts' in message && message.mounts === 'end');
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('message', onMessage);
  try {
    await checkHost();
    const { version, hasCompatDir } = await lookAtProgram(config.LONGSHORE_S3FS).catch((error: unknown) => {
      throw new StartupError('mounts_not_possible', messageOf(error), { cause: error });
    });
    const directory = config.LONGSHORE_MOUNTS_DIR;
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await chmod(directory, 0o700);
    const scheduler = config.LONGSHORE_SCHEDULER_ADDRESS;
    const mounts = new Mounts({
      directory,
      cacheDir: config.LONGSHORE_MOUNTS_CACHE_DIR,
      cacheMib: config.LONGSHORE_MOUNTS_CACHE_MIB,
      program: config.LONGSHORE_S3FS,
      hasCompatDir,
      caBundle: config.LONGSHORE_CA_BUNDLE,
      volumes: volumesStore(config),
      guard: new Guard({
        allowed: rulesOf(config, 'LONGSHORE_BUCKET_ALLOW'),
        closed: rulesOf(config, 'LONGSHORE_AGENT_CLOSED_RANGES'),
        schedulerHost: scheduler === undefined ? undefined : splitAddress(scheduler).host,
      }),
      log,
    });
    await mounts.start();
    const close = await serveMounts(join(directory, MOUNT_SOCKET), mounts, log);
    log.info({ directory, s3fs: version, volumes: config.LONGSHORE_S3_VOLUMES !== undefined }, 'mount helper started');
    manager.ready(`s3fs ${version}`);
    process.send?.({ kind: 'ready' });
    const end = await stopped.promise;
    await manager.stopping();
    await close();
    await mounts.stop(end);
    log.info({ mounts: end ? 'end' : 'keep' }, 'mount helper stopped');
  } finally {
    process.removeListener('SIGTERM', onSignal);
    process.removeListener('SIGINT', onSignal);
    process.removeListener('message', onMessage);
  }
}

/** @throws StartupError `mounts_not_possible`, saying what the host lacks */
async function checkHost(): Promise<void> {
  const lack =
    process.getuid?.() !== 0
      ? 'the mount helper must run as root: only root may mount'
      : await access('/dev/fuse', constants.R_OK | constants.W_OK).then(
          () => undefined,
          () => 'this machine has no /dev/fuse: load the kernel module fuse, and install the package fuse3',
        );
  if (lack !== undefined) throw new StartupError('mounts_not_possible', lack);
}
