// Pods and sandboxes over gRPC, with a supervisor that is a real process: repeated calls, new output, pieces of files.
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { brokenOff } from '#scheduler/fleet/inside/request.ts';
import type { ContainerRow } from '#scheduler/stores/store/queries/containers.ts';
import { AppError } from '#shared/errors.ts';
import { POD, aContainerWorld } from '../helpers/containers.ts';
import type { ContainerWorld } from '../helpers/containers.ts';
import { faultyGrpc } from '../helpers/faulty-grpc.ts';
import { POD_RPCS } from '../helpers/grpc-calls.ts';
import { GrpcClient } from '../helpers/grpc-client.ts';
import { POD_SERVICE, grpcOf } from '../helpers/grpc-world.ts';
import type { GrpcWorld } from '../helpers/grpc-world.ts';
import { waitFor } from '../helpers/programs.ts';

type Message = Readonly<Record<string, unknown>>;

const UNAVAILABLE = 14;
const MIB = 1024 * 1024;

let world: ContainerWorld;
/** Two schedulers, which know nothing of each other. */
let one: GrpcWorld;
let other: GrpcWorld;
beforeAll(async () => {
  world = await aContainerWorld();
  [one, other] = await Promise.all([grpcOf(world), grpcOf(world)]);
});
afterAll(async () => {
  await Promise.all([one.stop(), other.stop()]);
  await world.stop();
});

const again = (id: string) => ({ metadata: { 'x-beta9-request-id': id } });
async function asked(name: string, message: Message = {}, id = '', on = one): Promise<Message> {
  const { code, details, answer } = await on.call(name, { containerId: POD, ...message }, id === '' ? {} : again(id));
  expect({ code, details, answer }).toMatchObject({ code: 0, answer: { ok: true, error_msg: '' } });
  return answer ?? {};
}
async function refused(name: string, message: Message = {}): Promise<unknown> {
  const { code, answer } = await one.call(name, { containerId: POD, ...message });
  expect([code, answer?.['ok']]).toEqual([0, false]);
  return answer?.['error_msg'];
}
const linesOf = (name: string): string[] =>
  readFileSync(join(world.supervisor.directory, name), 'utf8').trimEnd().split('\n');
async function ended(pid: unknown): Promise<void> {
  const hasEnded = async () => Number((await asked('SandboxStatus', { pid }))['exit_code']) >= 0;
  await waitFor(hasEnded, `program ${String(pid)} ends`, 30_000);
}

describe('a repeated call', () => {
  test('starts one program, on any scheduler', async () => {
    const command = { command: 'echo ran >> repeated' };
    const first = await Promise.all(
      [one, other, one, other].map((on) => asked('SandboxExec', command, 'repeated-1', on)),
    );
    const later = await asked('SandboxExec', command, 'repeated-1', other);
    const next = await asked('SandboxExec', command, 'repeated-2', other);
    const pids = new Set([...first, later].map(({ pid }) => pid));
    expect(pids.size).toBe(1);
    expect(pids).not.toContain(next['pid']);
    await ended(next['pid']);
    await ended(later['pid']);
    expect(linesOf('repeated')).toEqual(['ran', 'ran']);
  });

  test('waits for the program, as the first call does', async () => {
    const asks = { command: 'echo ran >> waited; sleep 1; echo done', wait: true };
    const answers = await Promise.all([one, other].map((on) => asked('SandboxExec', asks, 'waited-1', on)));
    for (const answer of answers) expect(answer).toMatchObject({ done: true, exit_code: 0, stdout: 'done\n' });
    expect(linesOf('waited')).toEqual(['ran']);
  });

  test('of new output gives the same text, and nothing is lost or comes twice', async () => {
    const { pid } = await asked('SandboxExec', { command: 'echo é1; read x < /dev/null; echo 2' });
    await ended(pid);
    const first = await asked('SandboxStdout', { pid }, 'out-1');
    const repeated = await asked('SandboxStdout', { pid }, 'out-1', other);
    expect([first['stdout'], repeated['stdout']]).toEqual(['é1\n2\n', 'é1\n2\n']);
    expect(await asked('SandboxStdout', { pid }, 'out-2', other)).toMatchObject({ stdout: '' });
    expect(await asked('SandboxStderr', { pid }, 'err-1')).toMatchObject({ stderr: '' });
    // HTTP goes on telling everything.
    expect((await world.call(`GET /pods/${POD}/stdout?pid=${String(pid)}`)).json['stdout']).toBe('é1\n2\n');
  });

  test('hundreds of programs run once each, while calls fail before, during and after their work', async () => {
    const faulty = await faultyGrpc([one.address, other.address], { seed: 7, share: 0.4 });
    const client = new GrpcClient(faulty.address);
    const call = async (name: string, id: string, message: Message): Promise<Message> => {
      for (;;) {
        const how = { token: 'own', ...again(id) };
        const { code, details, answer } = await client.call(
          `${POD_SERVICE}/${name}`,
          { containerId: POD, ...message },
          how,
        );
        if (code === 0) return answer ?? {};
        expect([code, details]).toEqual([UNAVAILABLE, 'a planted fault']);
      }
    };
    const [programs, workers] = [240, 8];
    const printed: string[] = [];
    await Promise.all(
      Array.from({ length: workers }, async (_, worker) => {
        for (let n = worker; n < programs; n += workers) {
          const { pid, ...rest } = await call('SandboxExec', `many-${n}`, { command: `echo ${n} >> many; echo ${n}` });
          expect(rest).toMatchObject({ ok: true, error_msg: '' });
          let text = '';
          for (let look = 0, isOver = false; !isOver || text === ''; look += 1) {
            isOver = Number((await call('SandboxStatus', `status-${n}-${look}`, { pid }))['exit_code']) >= 0;
            text += String((await call('SandboxStdout', `stdout-${n}-${look}`, { pid }))['stdout']);
          }
          printed.push(text);
        }
      }),
    );
    client.close();
    faulty.stop();
    const wanted = Array.from({ length: programs }, (_, n) => String(n)).toSorted();
    expect(linesOf('many').toSorted()).toEqual(wanted);
    expect(printed.toSorted()).toEqual(wanted.map((n) => `${n}\n`));
    for (const count of Object.values(faulty.faults)) expect(count).toBeGreaterThan(20);
  }, 120_000);
});

describe('files', () => {
  test('come in pieces by their offsets, and go out in pieces', async () => {
    const data = randomBytes(9 * MIB + 17);
    const path = 'pieces.bin';
    for (let offset = 0; offset < data.length; offset += 4 * MIB) {
      const piece = data.subarray(offset, offset + 4 * MIB).toString('base64');
      const message = { containerPath: path, mode: 0o640, data: piece, offset };
      // A piece that is sent again, to another scheduler, changes nothing.
      await asked('SandboxUploadFile', message, `piece-${offset}`);
      await asked('SandboxUploadFile', message, `piece-${offset}`, offset === 0 ? one : other);
    }
    expect(hashOf(readFileSync(join(world.supervisor.directory, path)))).toBe(hashOf(data));
    const back: Buffer[] = [];
    for (let offset = 0; ;) {
      const asks = { containerPath: path, offset, length: 4 * MIB };
      const piece = Buffer.from(String((await asked('SandboxDownloadFile', asks))['data']), 'base64');
      back.push(piece);
      offset += piece.length;
      if (piece.length < 4 * MIB) break;
    }
    expect(hashOf(Buffer.concat(back))).toBe(hashOf(data));
    const { file_info: info } = await asked('SandboxStatFile', { containerPath: path });
    expect(info).toMatchObject({ name: path, size: String(data.length), mode: 0o640, is_dir: false });
    expect(await refused('SandboxUploadFile', { containerPath: 'gap', data: 'AAAA', offset: 5 })).toContain('gap');
    expect(await refused('SandboxUploadFile', { containerPath: path, data: 'AAAA', offset: -1 })).toContain('offset');
    expect(await refused('SandboxDownloadFile', { containerPath: path, offset: -1, length: 1 })).toContain('offset');
    for (const length of [0, 4 * MIB + 1])
      expect(await refused('SandboxDownloadFile', { containerPath: path, length })).toContain('length');
  }, 60_000);

  test('whose bytes do not come give their room back', async () => {
    const slow = await grpcOf(world, { pieceWithinMs: 200 });
    const client = new GrpcClient(slow.address);
    const late = await Promise.all(
      Array.from({ length: 20 }, () => client.silent(`${POD_SERVICE}/SandboxUploadFile`, { token: 'own' })),
    );
    // Sixteen of a workspace at a time; clients call again for both reasons.
    expect(late.map(({ code }) => code).toSorted((a, b) => a - b)).toEqual([
      ...Array.from({ length: 16 }, () => 4),
      ...Array.from({ length: 4 }, () => UNAVAILABLE),
    ]);
    const message = { containerId: POD, containerPath: 'room', data: bytesOf('x') };
    expect((await slow.call('SandboxUploadFile', message)).answer).toMatchObject({ ok: true });
    client.close();
    await slow.stop();
  });

  test('that are missing say so in the words that clients look for', async () => {
    for (const name of ['SandboxStatFile', 'SandboxListFiles', 'SandboxDownloadFile', 'SandboxDeleteFile'])
      expect(String(await refused(name, { containerPath: 'missing', length: 1 })).toLowerCase()).toContain(
        'no such file or directory',
      );
  });

  test('are made, found, changed and deleted', async () => {
    await asked('SandboxCreateDirectory', { containerPath: 'folder/deep' });
    await asked('SandboxUploadFile', { containerPath: 'folder/deep/a.txt', data: bytesOf('one\nold two\n') });
    const { results } = await asked('SandboxFindInFiles', { containerPath: 'folder', pattern: 'o.d' });
    expect(results).toEqual([
      {
        path: expect.stringMatching(/deep\/a\.txt$/) as string,
        matches: [{ range: { start: { line: 2, column: 1 }, end: { line: 2, column: 4 } }, content: 'old two' }],
      },
    ]);
    await asked('SandboxReplaceInFiles', { containerPath: 'folder', pattern: 'old', newString: 'new' });
    const { files } = await asked('SandboxListFiles', { containerPath: 'folder/deep' });
    expect(files).toMatchObject([{ name: 'a.txt', size: '12' }]);
    await asked('SandboxDeleteFile', { containerPath: 'folder/deep/a.txt' });
    await asked('SandboxDeleteDirectory', { containerPath: 'folder' });
  });
});

describe('a sandbox', () => {
  test('tells its programs, its own state and its end', async () => {
    const { pid } = await asked('SandboxExec', { command: 'sleep 1000', env: { A: 'b' } });
    const { processes } = await asked('SandboxListProcesses');
    expect(processes).toContainEqual({
      pid,
      cmd: 'sleep 1000',
      cwd: expect.any(String) as string,
      env: ['A=b'],
      running: true,
      exit_code: -1,
    });
    await asked('SandboxKill', { pid });
    await ended(pid);
    expect(await asked('SandboxStatus', { pid: 0 })).toMatchObject({ status: 'running', exit_code: -1 });
    const row = world.rows.get(POD) as ContainerRow;
    for (const [changed, told] of [
      [{ state: 'STARTING' }, { status: 'pending', exit_code: -1 }],
      [{ state: 'STOPPING' }, { status: 'running', exit_code: -1 }],
      [
        { state: 'STOPPED', exitCode: 3 },
        { status: 'exited', exit_code: 3 },
      ],
      [{ state: 'LOST' }, { status: 'exited', exit_code: 255 }],
    ] as const) {
      world.rows.set(POD, { ...row, ...changed });
      expect(await asked('SandboxStatus', { pid: 0 })).toMatchObject(told);
    }
    world.rows.set(POD, row);
  });

  test('has its ports, its time to live and its network changed', async () => {
    const { url } = await asked('SandboxExposePort', { stubId: 'stub-1', port: 9000 });
    expect((await asked('SandboxListUrls'))['urls']).toMatchObject({ 9000: url });
    await asked('SandboxUpdateTTL', { ttl: -1 });
    expect(await refused('SandboxUpdateTTL', { ttl: 0 })).toContain('ttl');
    world.changes.length = 0;
    await asked('SandboxUpdateNetworkPermissions', { allowList: ['198.51.100.7', '2001:db8::1', '192.0.2.0/24'] });
    expect(world.changes).toMatchObject([
      { network: { allowList: ['198.51.100.7/32', '2001:db8::1/128', '192.0.2.0/24'] } },
    ]);
    expect(await refused('SandboxUpdateNetworkPermissions', { allowList: ['example.com'] })).toContain('example.com');
    expect(await asked('SandboxConnect')).toMatchObject({ stub_id: 'stub-1' });
  });

  test('is made an image; what is not built says so', async () => {
    expect(await asked('SandboxCreateImageFromFilesystem', { stubId: 'stub-1' })).toMatchObject({
      image_id: 'longshore-built/1',
    });
    expect(await refused('SandboxSnapshotMemory', { stubId: 'stub-1' })).toContain('memory');
    expect(await refused('SandboxSnapshotDisks', { stubId: 'stub-1' })).toContain('disks');
    expect(await refused('SandboxExec', { command: 'true', secrets: ['KEY'] })).toContain('secrets');
    expect(await refused('CreatePod', { imageId: 'image' })).toContain('image_id');
    expect(await refused('CreatePod', { machineId: 'machine' })).toContain('machine_id');
    expect(await refused('CreatePod', { checkpointId: 'checkpoint' })).toContain('checkpoints');
  });
});

describe('a failure', () => {
  const failing = (error: AppError): Promise<GrpcWorld> => {
    const fails = (): Promise<never> => Promise.reject(error);
    return grpcOf({ ...world, pods: { ...world.pods, inside: { ask: fails, read: fails, write: fails } } });
  };

  test('that may pass has clients call again, and any other is told', async () => {
    const away = await failing(new AppError('machine_away', 'the machine is away'));
    const cut = await failing(brokenOff());
    const broken = await failing(new AppError('container_failed', 'the container is broken'));
    for (const name of ['SandboxExec', 'SandboxStdout', 'SandboxUploadFile']) {
      const message = { containerId: POD, command: 'true', pid: 1, containerPath: 'a' };
      expect(await away.call(name, message)).toMatchObject({ code: UNAVAILABLE, details: 'the machine is away' });
      expect((await cut.call(name, message)).code).toBe(UNAVAILABLE);
      expect(await broken.call(name, message)).toMatchObject({
        code: 0,
        answer: { ok: false, error_msg: 'the container is broken' },
      });
    }
    await Promise.all([away, cut, broken].map((scheduler) => scheduler.stop()));
  });
});

test.each(POD_RPCS)('$path: nobody but a full token of the workspace', async ({ path }) => {
  const name = path.split('/')[1] ?? '';
  const message = {
    containerId: POD,
    command: 'touch done',
    pid: 1,
    containerPath: 'done',
    pattern: 'a',
    port: 7000,
    ttl: 60,
    length: 1,
  };
  for (const token of ['', 'unknown']) expect((await one.call(name, message, { token })).code).toBe(16);
  for (const token of ['restricted', 'container'])
    expect((await one.call(name, message, { token })).answer).toMatchObject({
      ok: false,
      error_msg: 'Unauthorized Access',
    });
  if (name === 'CreatePod' || name === 'SandboxSnapshotDisks') return;
  expect((await one.call(name, message, { token: 'other' })).answer).toMatchObject({
    ok: false,
    error_msg: `Container not found: ${POD}`,
  });
});

const hashOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
const bytesOf = (text: string): string => Buffer.from(text).toString('base64');
