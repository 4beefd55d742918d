// A scheduler with a file of providers, whose program is a shell script of the test.
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ReplicaSet } from './replicas.ts';
import type { Replica } from './replicas.ts';
import { aPostgres, aRedis } from './services.ts';

export interface ProviderWorld {
  readonly set: ReplicaSet;
  readonly replica: Replica;
  /** Folder of the program, of its file of providers, and of what a test puts there: `$FOLDER` for the program. */
  readonly folder: string;
  readonly program: string;
  /** Writes a file with providers of these names. @param more - fields of each */
  readonly write: (names: readonly string[], more?: Readonly<Record<string, unknown>>) => void;
  readonly stop: () => Promise<void>;
}

/** @param prepare - called with the folder, before the scheduler starts */
export async function aProviderWorld(
  script: string,
  prepare: (folder: string) => void = () => undefined,
): Promise<ProviderWorld> {
  const [postgres, redis] = await Promise.all([aPostgres(), aRedis()]);
  const set = new ReplicaSet(postgres, redis);
  const folder = set.directory;
  const program = join(folder, 'provider');
  const file = join(folder, 'providers.json');
  const write: ProviderWorld['write'] = (names, more = {}) => {
    const one = { command: [program], env: { FOLDER: folder }, ...more };
    writeFileSync(file, JSON.stringify({ providers: Object.fromEntries(names.map((name) => [name, one])) }));
  };
  writeFileSync(program, script);
  chmodSync(program, 0o755);
  write(['cloud']);
  prepare(folder);
  const stop = async (): Promise<void> => {
    await set.stop();
    await Promise.all([postgres.stop(), redis.stop()]);
  };
  const replica = await set.add({ LONGSHORE_PROVIDERS_FILE: file }).catch(async (error: unknown) => {
    await stop();
    throw error;
  });
  return { set, replica, folder, program, write, stop };
}
