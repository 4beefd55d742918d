// The mount helper as the service of a release: its unit's rights are enough, its mounts are seen by the rest of the
// host, and they outlive it.
import { realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT } from '../helpers/platform.ts';
import type { S3Server } from '../helpers/s3-server.ts';
import { anS3Server } from '../helpers/s3-server.ts';
import { docker, tempDirectory, waitFor } from '../helpers/services.ts';
import type { TestDocker } from '../helpers/services.ts';
import { SystemdHost } from '../helpers/systemd-host.ts';
import { volumesOn } from '../helpers/mounts.ts';

const UNIT = 'longshore-mounts.service';
// Plain JavaScript, so that its types are said here.
const BUNDLE: string = join(ROOT, 'scripts/build/bundle.mjs');
const { bundleProgram } = (await import(BUNDLE)) as {
  bundleProgram: (directory: string, entries: Readonly<Record<string, string>>) => Promise<unknown>;
};
const NODE = join(realpathSync(join(ROOT, 'node_modules')), `node-linux-${process.arch}`, 'bin', 'node');

let engine: TestDocker;
let server: S3Server;
let host: SystemdHost;
let work: ReturnType<typeof tempDirectory>;
beforeAll(async () => {
  engine = await docker();
  work = tempDirectory('mounts-unit');
  await bundleProgram(work.path, { mounts: 'agent/mounts/service.ts' });
  server = await anS3Server(engine);
  const shown = {
    [dirname(NODE)]: '/opt/longshore/current/bin',
    [join(work.path, 'lib')]: '/opt/longshore/current/lib',
  };
  host = new SystemdHost(engine, { ...shown, [join(ROOT, 'systemd')]: '/opt/longshore/current/systemd' }, [
    '/dev/fuse',
  ]);
  await host.start();
  const settings = Object.entries(volumesOn(server)).map(([name, value]) => `${name}=${value}`);
  await host.sh(
    `mkdir -p /etc/longshore-agent && printf '%s\\n' ${settings.map((one) => `'${one}'`).join(' ')} > /etc/longshore-agent/mounts.env && ` +
      `install -m 644 /opt/longshore/current/systemd/${UNIT} /etc/systemd/system/ && systemctl daemon-reload && systemctl enable --now ${UNIT}`,
  );
});
afterAll(async () => {
  await host.try(`systemctl stop ${UNIT}; umount -l /run/longshore-mounts/s3/*/*`);
  await host.remove();
  work.remove();
  await engine.cleanUp();
});

const volume = async (volumeId: string): Promise<string> => {
  const body = JSON.stringify({ holder: 'c-1', workspaceId: 'ws-1', volumeId });
  const said = await host.sh(
    `curl -sS --unix-socket /run/longshore-mounts/mounts.sock -d '${body}' http://helper/volume`,
  );
  return (JSON.parse(said) as { readonly path: string }).path;
};

test('the unit mounts with the one capability that it has, where the whole host sees it', async () => {
  expect(await host.property(UNIT, 'ActiveState')).toBe('active');
  expect(await host.property(UNIT, 'StatusText')).toContain('s3fs');
  const path = await volume('v-1');
  await host.sh(`echo hello > ${path}/a.txt && test "$(cat ${path}/a.txt)" = hello`);
  expect(await host.try(`setpriv --reuid=1000 --clear-groups ls /run/longshore-mounts`)).toContain('Permission denied');
  const pid = await host.property(UNIT, 'MainPID');
  // CAP_SYS_ADMIN, and nothing else.
  expect(await host.sh(`grep CapBnd /proc/${pid}/status`)).toContain('0000000000200000');
  expect(await host.sh(`tr '\\0' ' ' < /proc/$(pidof s3fs)/cmdline`)).not.toContain(server.credentials.secretAccessKey);
});

test('a restart and a crash of the helper leave the mount to the next one', async () => {
  const path = await volume('v-1');
  const daemon = await host.sh('pidof s3fs');
  await host.sh(`systemctl restart ${UNIT}`);
  expect(await volume('v-1')).toBe(path);
  await host.sh(`systemctl kill -s KILL ${UNIT} --kill-who=main`);
  await waitFor(
    async () =>
      (
        await host.try(
          `systemctl is-active ${UNIT} && ls /run/longshore-mounts/mounts.sock && curl -sS --unix-socket /run/longshore-mounts/mounts.sock -d '{}' http://helper/state`,
        )
      ).includes('"mounts":1'),
    'the next helper has the mount',
    30_000,
  );
  expect(await host.sh('pidof s3fs')).toBe(daemon);
  expect(await host.sh(`cat ${path}/a.txt`)).toBe('hello\n');
});
