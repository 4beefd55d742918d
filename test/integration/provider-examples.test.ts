/** The examples of programs that make machines, with stand-ins for the command lines of their clouds. */
import { chmodSync, mkdirSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { CommandProvider } from '#scheduler/fleet/provisioning/command-provider.ts';
import type { InstanceRequest } from '#scheduler/domain/provisioning.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { tempDirectory, test as base } from '../helpers/services.ts';

// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
const test = base.extend('folder', async ({}, { onCleanup }): Promise<string> => {
  const directory = tempDirectory('examples');
  onCleanup(() => directory.remove());
  return directory.path;
});

const PROGRAMS = join(import.meta.dirname, '..', '..', 'deploy', 'providers');

const TAGS = { 'longshore-request': 'r1', 'longshore-installation': 'ours' };
const SERVER = { id: 7, status: 'running', labels: TAGS, public_net: { ipv4: { ip: '198.51.100.7' } } };
const EC2_INSTANCE = {
  InstanceId: '7',
  PrivateIpAddress: '198.51.100.7',
  State: { Name: 'running' },
  Tags: Object.entries(TAGS).map(([Key, Value]) => ({ Key, Value })),
};

/** A stand-in: what it does for arguments that match a pattern of the shell; others are a failure. */
const standIn = (...cases: readonly (readonly [string, string])[]): string =>
  ['case "$*" in', ...cases.map(([pattern, does]) => `${pattern}) ${does};;`), '*) exit 9;;', 'esac'].join('\n');
const says = (value: unknown): string => `echo '${JSON.stringify(value)}'`;
/** Keeps the file that an argument names behind a prefix. */
const keeps = (prefix: string): string =>
  `for arg; do case $arg in ${prefix}*) cp "\${arg#${prefix}}" given;; esac; done; touch made`;

const STAND_INS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  hetzner: {
    hcloud: standIn(
      ['*"-l longshore-installation=ours"*', says([SERVER])],
      ['*"server list"*', `if [ -e made ]; then ${says([SERVER])}; else echo '[]'; fi`],
      ['*"server create"*', `cat > given; touch made; ${says({ server: SERVER })}`],
      ['*"server delete 7"*', 'rm made'],
    ),
  },
  aws: {
    aws: standIn(
      ['*run-instances*', `${keeps('file:??')}; ${says({ Instances: [EC2_INSTANCE] })}`],
      ['*describe-instances*', says({ Reservations: [{ Instances: [EC2_INSTANCE] }] })],
      ['*terminate-instances*', '[ -e made ] && rm made || { echo "(InvalidInstanceID.NotFound)" >&2; exit 254; }'],
    ),
  },
  libvirt: {
    virsh: standIn(
      ['"list --all --name"', '[ ! -e made ] || echo longshore-r1; echo other'],
      ['"desc longshore-r1"', 'echo ours'],
      ['domstate*', '[ -e off ] && echo "shut off" || echo running'],
      ['undefine*', 'rm made'],
      ['destroy*', ':'],
    ),
    'virt-install': keeps('user-data='),
  },
  docker: {
    sleep: ':',
    docker: standIn(
      ['*label=longshore-installation=ours*', "echo '7 running r1 ours'"],
      ['"run -d --rm "*"--label longshore-installation=ours"*', 'touch made; echo 7'],
      ['"ps -aq"*', '[ ! -e made ] || echo 7'],
      ['"start 7"', 'echo 7'],
      [
        '"exec 7 systemctl is-system-running"',
        'if [ -e booted ]; then echo degraded; exit 1; fi; touch booted; exit 1',
      ],
      ['"exec 7 test -e /var/lib/longshore-agent/agent/machine.json"', '[ -e given ]'],
      ['"exec -i 7 sh -s"', '[ -e booted ] && cat > given && /bin/sh -s < given'],
      ['"rm -fv 7"', 'rm made'],
    ),
  },
};

const REQUEST: InstanceRequest = {
  requestId: 'r1',
  installationId: 'ours',
  machineId: 'm1' as MachineId,
  poolName: 'gpu',
  shape: { gpuModel: '', gpuCount: 0, cpuCores: 2, memoryMib: 4096 },
  joinLine: ': the text to join',
  userData: ': the text to join',
};

/** The provider of an example, with stand-ins for programs of its cloud and further ones. */
function exampleIn(folder: string, example: string, more: Readonly<Record<string, string>> = {}) {
  const bin = join(folder, 'bin');
  const home = join(folder, 'home');
  for (const path of [bin, home]) mkdirSync(path, { recursive: true });
  for (const [name, script] of Object.entries({ ...STAND_INS[example], ...more })) {
    writeFileSync(join(bin, name), `#!/bin/bash\necho "${name} $*" >> ${home}/calls\ncd ${home}\n${script}\n`);
    chmodSync(join(bin, name), 0o755);
  }
  const provider = new CommandProvider({
    name: example,
    settings: {
      command: [join(PROGRAMS, example)],
      timeoutSeconds: 60,
      env: { IMAGE: 'image-1', BASE: '/base.qcow2' },
    },
    home,
    env: { PATH: `${bin}:${process.env['PATH']}` },
  });
  return { provider, home, calls: () => readFileSync(join(home, 'calls'), 'utf8') };
}

test.for(Object.keys(STAND_INS))(
  '%s creates once for a request, lists, and terminates twice without a failure',
  async (example, { folder }) => {
    const { provider, home, calls: callsOf } = exampleIn(folder, example);
    const { instanceId } = await provider.create(REQUEST);
    expect(readFileSync(join(home, 'given'), 'utf8').trim().split('\n').at(-1)).toBe(REQUEST.joinLine);
    expect(await provider.create(REQUEST)).toMatchObject({ instanceId, requestId: 'r1' });
    const listed = await provider.list('ours');
    expect(listed).toMatchObject([{ instanceId, requestId: 'r1', state: 'running' }]);
    await provider.terminate({ instanceId, requestId: 'r1' });
    await provider.terminate({ instanceId, requestId: 'r1' });

    const calls = callsOf();
    // No process list shows what an instance joins with.
    expect(calls).not.toContain(REQUEST.joinLine);
    const creations = calls.match(/server create|run-instances|virt-install|docker run/g) ?? [];
    // EC2 itself answers a repeated client token with the first instance.
    expect(creations).toHaveLength(example === 'aws' ? 2 : 1);
    if (example === 'aws') expect(calls.match(/--client-token r1/g)).toHaveLength(2);
  },
);

test('docker waits for systemd, runs the line without sudo, and finishes a creation that was cut off', async ({
  folder,
}) => {
  const { provider, home, calls } = exampleIn(folder, 'docker', { sudo: 'exit 9' });
  const cut = { ...REQUEST, joinLine: 'exit 7' };
  await expect(provider.create(cut)).rejects.toThrow();
  unlinkSync(join(home, 'given'));
  const { instanceId } = await provider.create({ ...REQUEST, joinLine: `echo a | sudo tee ${home}/joined` });
  expect(instanceId).toBe('7');
  expect(readFileSync(join(home, 'joined'), 'utf8')).toBe('a\n');
  // The first look came before systemd.
  expect(calls().match(/is-system-running/g)).toHaveLength(3);
  expect(calls().match(/docker run/g)).toHaveLength(1);
  await provider.create(REQUEST);
  expect(calls().match(/exec -i/g)).toHaveLength(2);
});

test('libvirt lists a machine that is off as one that is there, so that it is terminated where nobody wants it', async ({
  folder,
}) => {
  const { provider, home } = exampleIn(folder, 'libvirt');
  await provider.create(REQUEST);
  writeFileSync(join(home, 'off'), '');
  expect(await provider.list('ours')).toMatchObject([{ instanceId: 'longshore-r1', state: 'pending' }]);
});
