// The scheduler as a process of its own: settings from the environment, signals,
// and requests of its supervisor over the IPC channel. Called by the command line.
import { homedir } from 'node:os';
import { join } from 'node:path';
import { loadConfig } from '#shared/config.ts';
import { StartupError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { createLog } from '#shared/log.ts';
import { NO_SERVICE_MANAGER, takeServiceManager } from '#shared/service-manager.ts';
import { SETTING_NAMES, straySettings, warnOfStrays } from '#shared/settings.ts';
import { beginStores } from './compose/stores.ts';
import { SchedulerSettings } from './config.ts';
import type { Scheduler } from './main.ts';

/** Time that the parts below HTTP may take to stop once calls have ended. */
const AFTER_DRAIN_SECONDS = 60;

/**
 * Runs the scheduler until a signal, or until its supervisor is gone. Over an IPC channel it says `ready` (or `failed`)
 * and answers `ensureFirstWorkspace`, `createLocalMachine` and `drain`.
 * @returns the exit code
 */
export async function runScheduler(env: Readonly<Record<string, string | undefined>>): Promise<number> {
  const manager = takeServiceManager(process.env, () => log);
  const defaults = { LONGSHORE_DATA_DIR: env['LONGSHORE_DATA_DIR'] || defaultDataDir() };
  const settings = readSettings({ ...env, ...defaults });
  const log = createLog({ name: 'longshore-scheduler', level: settings.LONGSHORE_LOG_LEVEL });
  // A supervisor such as `longshore up` gives one environment to both daemons.
  if (process.send === undefined)
    warnOfStrays(log, straySettings(env, Object.keys(SchedulerSettings.properties), ['agent', 'mounts']));
  const stopping = new Promise<void>((resolve) => {
    process.once('SIGTERM', () => resolve());
    process.once('SIGINT', () => resolve());
    process.once('disconnect', () => resolve());
  });
  manager.watch(() => true);
  const running = Promise.withResolvers<Scheduler>();
  // Without such a file, and on a terminal, the signal keeps its
  // default effect. A signal during the start is handled after it.
  const readsFiles =
    settings.LONGSHORE_POOLS_FILE !== undefined ||
    settings.LONGSHORE_PROVIDERS_FILE !== undefined ||
    settings.LONGSHORE_HTTP_TLS_CERT !== undefined;
  if (readsFiles || manager !== NO_SERVICE_MANAGER)
    process.on('SIGHUP', () => void running.promise.then((scheduler) => scheduler.readFilesAgain()));
  // The stores start on other cores while this one loads the code.
  const opening = beginStores(settings, log);
  await opening.begun;
  const { startScheduler } = await import('./main.ts');
  const scheduler = await startScheduler(settings, log, opening);
  running.resolve(scheduler);
  manager.ready(`serving on ${scheduler.httpAddress}, agents dial ${scheduler.agentAddress}`);
  process.on('message', (message: unknown) => void answer(scheduler, message, log));
  process.send?.({
    kind: 'ready',
    httpAddress: scheduler.httpAddress,
    agentAddress: scheduler.agentAddress,
    grpcAddress: scheduler.grpcAddress,
    caFingerprint: scheduler.caFingerprint,
  });
  await stopping;
  log.info('scheduler stopping');
  await manager.stopping(settings.LONGSHORE_DRAIN_SECONDS + AFTER_DRAIN_SECONDS);
  await scheduler.stop();
  return 0;
}

/** @throws StartupError `bad_config`, exit code 78: another start would not cure it */
function readSettings(env: Readonly<Record<string, string | undefined>>): SchedulerSettings {
  try {
    return loadConfig(SchedulerSettings, env, { known: SETTING_NAMES });
  } catch (error) {
    throw new StartupError('bad_config', messageOf(error), { cause: error, exitCode: 78 });
  }
}

async function answer(scheduler: Scheduler, message: unknown, log: Log): Promise<void> {
  if (typeof message !== 'object' || message === null) return;
  const { kind, id, issueToken } = message as { kind?: unknown; id?: unknown; issueToken?: unknown };
  try {
    if (kind === 'ensureFirstWorkspace') {
      process.send?.({
        kind: 'firstWorkspace',
        id,
        ...(await scheduler.ensureFirstWorkspace({ issueToken: issueToken === true })),
      });
    } else if (kind === 'drain') {
      await scheduler.drain();
      process.send?.({ kind: 'drained', id });
    } else if (kind === 'createLocalMachine') {
      process.send?.({ kind: 'localMachine', id, joinToken: await scheduler.createLocalMachine() });
    }
  } catch (error) {
    log.error({ err: error, kind }, 'request of the supervisor failed');
    process.send?.({ kind: 'requestFailed', id, message: messageOf(error) });
  }
}

/** Default data directory; the unit of a service names another. */
function defaultDataDir(): string {
  return join(homedir(), '.local', 'share', 'longshore');
}
