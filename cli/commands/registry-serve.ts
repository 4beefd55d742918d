// `longshore registry serve`: the managed registry in the foreground, as a service runs it and as `longshore up
// --registry` starts it. A registry that ends by itself ends this program, which its supervisor starts again.
import { homedir } from 'node:os';
import { join } from 'node:path';
import { Type } from 'typebox';
import { loadConfig } from '#shared/config.ts';
import { createLog } from '#shared/log.ts';
import { SETTING_NAMES } from '#shared/settings.ts';
import { SchedulerSettings } from '#scheduler/config.ts';
import { ManagedRegistry } from '../up/managed-registry.ts';
import { underSupervisor } from './daemon.ts';

/** The settings of a scheduler that the registry shares. */
const RegistryServeSettings = Type.Pick(SchedulerSettings, [
  'LONGSHORE_DATA_DIR',
  'LONGSHORE_REGISTRY',
  'LONGSHORE_REGISTRY_PROGRAM',
  'LONGSHORE_OBJECTS_BUCKET',
  'LONGSHORE_OBJECTS_ENDPOINT',
  'LONGSHORE_OBJECTS_REGION',
  'LONGSHORE_OBJECTS_PREFIX',
  'LONGSHORE_OBJECTS_ACCESS_KEY_ID',
  'LONGSHORE_OBJECTS_SECRET_ACCESS_KEY',
  'LONGSHORE_LOG_LEVEL',
]);

export function runRegistryServe(env: NodeJS.ProcessEnv): Promise<number> {
  return underSupervisor(async () => {
    const share = env['XDG_DATA_HOME'] || join(env['HOME'] || homedir(), '.local', 'share');
    const given = { ...env, LONGSHORE_DATA_DIR: env['LONGSHORE_DATA_DIR'] || join(share, 'longshore') };
    const settings = loadConfig(RegistryServeSettings, given, {
      known: [...SETTING_NAMES, 'DATABASE_URL', 'REDIS_URL'],
    });
    const log = createLog({ name: 'registry', level: settings.LONGSHORE_LOG_LEVEL });
    const registry = new ManagedRegistry({
      program: settings.LONGSHORE_REGISTRY_PROGRAM,
      settings,
      address: settings.LONGSHORE_REGISTRY,
      log,
    });
    const stop = (): void => void registry.stop();
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, stop);
    try {
      await registry.start();
      log.info({ address: registry.address }, 'registry ready');
      process.send?.({ kind: 'ready', address: registry.address });
      await registry.run();
      return 0;
    } finally {
      await registry.stop();
    }
  });
}
