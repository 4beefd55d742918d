/** The mount helper for tests: a process of its own, in directories of its own; it needs root, FUSE and s3fs. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { MountHelper } from '#agent/volumes/mount-helper.ts';
import { mountsBelow, unmount } from '#agent/mounts/daemon.ts';
import { plainEnv } from './platform.ts';
import { tempDirectory, waitFor } from './services.ts';
import type { S3Server } from './s3-server.ts';

const PROGRAM = resolve(import.meta.dirname, '../../agent/mounts/service.ts');

export interface TestMounts {
  readonly directory: string;
  readonly cacheDir: string;
  readonly client: MountHelper;
  /** @param more - settings of this start alone */
  readonly start: (more?: Readonly<Record<string, string>>) => Promise<void>;
  /** kill -9. */
  readonly kill: () => Promise<void>;
  /** Ends the helper, and its mounts with `end`. */
  readonly stop: (mounts: 'keep' | 'end') => Promise<void>;
  readonly log: () => string;
  readonly mounted: () => readonly string[];
  /** Processes of s3fs of this helper. */
  readonly daemons: () => Promise<readonly number[]>;
  readonly cleanUp: () => Promise<void>;
}

/** Settings of `s3` volumes in that server's bucket. */
export const volumesOn = ({ endpoint, bucket, credentials }: S3Server, prefix = 'team'): Record<string, string> => ({
  LONGSHORE_S3_VOLUMES: `${bucket}/${prefix}`,
  LONGSHORE_S3_ENDPOINT: endpoint,
  LONGSHORE_S3_ACCESS_KEY_ID: credentials.accessKeyId,
  LONGSHORE_S3_SECRET_ACCESS_KEY: credentials.secretAccessKey,
});

export function testMounts(settings: Readonly<Record<string, string>> = {}): TestMounts {
  const home = tempDirectory('mounts');
  const directory = join(home.path, 'm');
  const cacheDir = join(home.path, 'c');
  let child: ChildProcess | undefined;
  let output = '';
  const start = async (more: Readonly<Record<string, string>> = {}): Promise<void> => {
    let isReady = false;
    const own = { LONGSHORE_MOUNTS_DIR: directory, LONGSHORE_MOUNTS_CACHE_DIR: cacheDir };
    const started = spawn(process.execPath, [PROGRAM], {
      env: { ...plainEnv(), ...own, ...settings, ...more },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    child = started;
    started.on('message', () => (isReady = true));
    for (const stream of [started.stdout, started.stderr])
      stream?.setEncoding('utf8').on('data', (text: string) => (output += text));
    await waitFor(() => {
      if (started.exitCode !== null) throw new Error(`the mount helper ended: ${output.slice(-2000)}`);
      return isReady;
    }, 'the mount helper is ready');
  };
  const gone = async (act: (running: ChildProcess) => void): Promise<void> => {
    const running = child;
    if (running === undefined || running.exitCode !== null || running.signalCode !== null) return;
    const closed = once(running, 'exit');
    act(running);
    await closed;
  };
  const stop = (mounts: 'keep' | 'end'): Promise<void> => gone((running) => running.send({ kind: 'stop', mounts }));
  return {
    directory,
    cacheDir,
    client: new MountHelper(join(directory, 'mounts.sock')),
    start,
    kill: () => gone((running) => void running.kill('SIGKILL')),
    stop,
    log: () => output,
    mounted: () => mountsBelow(directory),
    daemons: async () => {
      const file = JSON.parse(readFileSync(join(directory, 'state.json'), 'utf8')) as { mounts: { pid: number }[] };
      return file.mounts.map(({ pid }) => pid);
    },
    cleanUp: async () => {
      if (child === undefined) return home.remove();
      if (child.exitCode !== null || child.signalCode !== null) await start();
      await stop('end');
      await unmount(directory);
      home.remove();
    },
  };
}
