// Volumes by the REST API and by the command line, through a whole installation: a container uses the volume meanwhile.
import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect } from 'vitest';
import { expectDocument, expectOutput, steadyDocument, verbFile } from '../helpers/golden.ts';
import { MAIN, jsonOf, test as base } from '../helpers/platform.ts';
import type { Answer, CallOptions, Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/services.ts';

const MIB = 1024 * 1024;
const ODD = ['a b', 'ü 漢字', '-rf', '100%2F', 'line\nbreak', '"quoted"\\', '.hidden', 'a+b&c=d?e#f'];

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}
interface Running {
  readonly ended: Promise<Ended>;
  readonly interrupt: () => void;
}
interface World {
  readonly volumeId: string;
  readonly app: Deployment;
  /** Works in the container. */
  readonly inside: <T = string>(work: Readonly<Record<string, unknown>>) => Promise<T>;
  /** A route below the workspace's volumes. */
  readonly rest: (line: string, options?: CallOptions) => Promise<Answer>;
  /** `longshore volume …` */
  readonly begin: (...args: readonly string[]) => Running;
  readonly run: (...args: readonly string[]) => Promise<Ended>;
  /** The volume's directory on this machine. */
  readonly on: (path: string) => string;
  /** A path of this machine, beside everything else. */
  readonly local: (path: string) => string;
}

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

const test = base.extend('world', { scope: 'file' }, async ({ platform }): Promise<World> => {
  const { volume } = await platform.gateway<{ volume: { id: string } }>('/volumes', { name: 'data' });
  const app = await platform.deploy({
    app: 'files.py',
    handler: 'handler',
    name: 'files',
    keepWarmSeconds: 600,
    volumes: [{ id: volume.id, mountPath: 'data' }],
  });
  const inside = async <T>(work: Readonly<Record<string, unknown>>): Promise<T> => {
    const answer = await platform.invoke(app, work);
    if (answer.status !== 200) throw new Error(`${JSON.stringify(work)} was answered ${answer.text}`);
    return jsonOf<T>(answer);
  };
  const begin = (...args: readonly string[]): Running => {
    const env = { ...platform.env(), LONGSHORE_URL: platform.url, LONGSHORE_TOKEN: platform.token };
    const child = spawn(process.execPath, [MAIN, 'volume', ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, stdout, stderr }));
    return { ended, interrupt: () => void child.kill('SIGINT') };
  };
  await inside({ do: 'list' });
  return {
    volumeId: volume.id,
    app,
    inside,
    rest: (line, options = {}) => restOf(platform, line, options),
    begin,
    run: (...args) => begin(...args).ended,
    on: (path) => join(platform.dataDir, 'volumes', platform.workspaceId, volume.id, path),
    local: (path) => join(platform.directory, path),
  };
});

function restOf(platform: Platform, line: string, options: CallOptions): Promise<Answer> {
  const [method = '', path = ''] = line.split(/ (.*)/s);
  return platform.call(`/api/v1/volume/${platform.workspaceId}${path}`, { method, ...options });
}

const codeOf = (answer: Answer): unknown => [answer.status, jsonOf(answer)['code']];
const at = (path: string): string => `path=${encodeURIComponent(path)}`;

interface Listed {
  readonly kind: string;
  readonly data: readonly {
    readonly path: string;
    readonly kind: string;
    readonly size: number;
    readonly modified_at: string;
  }[];
  readonly next: string;
}

function writeLocal(path: string, bytes: Uint8Array | string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, bytes);
}

/** Paths of files and folders below a folder, with the bytes of files. */
function treeOf(folder: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    const full = join(entry.parentPath, entry.name);
    found[full.slice(folder.length + 1)] = entry.isFile() ? sha256(readFileSync(full)) : 'folder';
  }
  return found;
}

/** A document without the numbers that follow from the disk and the clock. */
function withoutSizes(value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => withoutSizes(item));
  if (value === null || typeof value !== 'object') return value;
  const fields = Object.entries(value).filter(([name]) => name !== 'disk_bytes' && name !== 'seconds');
  return Object.fromEntries(fields.map(([name, field]) => [name, withoutSizes(field)]));
}

/** Hidden folders and files of uploads and downloads that are not complete. */
function leftIn(folder: string): readonly string[] {
  try {
    const names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
    return names.filter((path) => /\.longshore-(?:upload|part)-/.test(path));
  } catch {
    // The folder is not there, or changes just now.
    return [];
  }
}

describe('volumes', () => {
  test('are made, listed, shown and deleted', async ({ world: { rest } }) => {
    const made = await rest('POST ', { body: { name: 'first' } });
    expect([made.status, jsonOf(made)]).toEqual([
      201,
      expect.objectContaining({ name: 'first', driver: 'local', machine_id: '' }),
    ]);
    expect(codeOf(await rest('POST ', { body: { name: 'first' } }))).toEqual([409, 'volume_exists']);
    for (const name of ['', '..', 'a/b', '-a', 'x'.repeat(64), 'ü']) {
      expect(codeOf(await rest('POST ', { body: { name } })), name).toEqual([422, 'invalid_body']);
    }
    expect(codeOf(await rest('POST ', { body: { name: 'm', machine_id: 'nobody' } }))).toEqual([
      404,
      'machine_not_found',
    ]);
    const page = await rest('GET ?limit=1');
    const { data, next } = jsonOf<{ data: { name: string }[]; next: string }>(page);
    expect(data.map(({ name }) => name)).toEqual(['data']);
    const second = await rest(`GET ?limit=1&cursor=${next}`);
    expect(jsonOf<{ data: { name: string }[] }>(second).data.map(({ name }) => name)).toEqual(['first']);
    expect(jsonOf<{ data: unknown[]; next: string }>(await rest('GET '))).toMatchObject({ next: '' });

    expect(jsonOf(await rest('GET /first/files'))).toEqual({ kind: 'folder', data: [], next: '' });
    expect(codeOf(await rest('GET /first/files?path=a'))).toEqual([404, 'volume_file_not_found']);
    expect(jsonOf(await rest('GET /first/size'))).toMatchObject({ bytes: 0, files: 0 });
    expect(jsonOf(await rest('GET /data'))).toMatchObject({
      machine_id: expect.stringMatching(/^[0-9a-f]{8}$/),
      deployments: [{ name: 'files', version: 1, kind: 'endpoint', active: true }],
      containers: 1,
    });
    expect(jsonOf(await rest('DELETE /first'))).toEqual({ removed: 0, complete: true });
    expect(codeOf(await rest('GET /first'))).toEqual([404, 'volume_not_found']);
    expect(codeOf(await rest('DELETE /data'))).toEqual([409, 'volume_in_use']);
  });

  test('and their files are unknown to other workspaces, and to callers without a good token', async ({
    platform,
    world: { inside, rest },
  }) => {
    await inside({ do: 'write', path: 'mine/a', text: 'mine' });
    const made = await platform.call('/api/v1/workspace', { body: { name: 'stranger' } });
    const { id, token } = jsonOf<{ id: string; token: string }>(made);
    const { token: own } = await platform.gateway<{ token: { key: string; tokenId: string } }>('/tokens', {});
    await platform.gateway(`/tokens/${own.tokenId}/toggle`, {});
    const lines: readonly (readonly [string, unknown?])[] = [
      ['GET /data'],
      ['DELETE /data'],
      ['GET /data/files'],
      ['DELETE /data/files?path=mine/a'],
      ['POST /data/files/move', { from: 'mine/a', to: 'mine/b' }],
      ['GET /data/size'],
      [`GET /data/upload?path=a&size=1&key=${'0'.repeat(16)}`],
      ['GET /data/pack-url'],
      ['GET /data/pack-url?method=PUT'],
      ['GET /data/file-url?path=mine/a'],
    ];
    for (const [line, body] of lines) {
      for (const one of ['', own.key, token]) {
        expect(codeOf(await rest(line, { body, token: one })), line).toEqual([401, 'unauthorized']);
      }
      const [method = '', path = ''] = line.split(' ');
      const foreign = await platform.call(`/api/v1/volume/${id}${path}`, { method, body, token });
      expect(codeOf(foreign), line).toEqual([404, 'volume_not_found']);
    }
    for (const one of ['', own.key]) expect((await rest('GET ', { token: one })).status).toBe(401);
    const theirs = await platform.call(`/api/v1/volume/${id}`, { token });
    expect(jsonOf(theirs)).toEqual({ data: [], next: '' });
    expect(await inside({ do: 'read', path: 'mine/a' })).toMatchObject({ sha256: sha256(Buffer.from('mine')) });
  });

  test('have no path outside of them, and the refusal names the field', async ({ world: { inside, rest } }) => {
    await inside({ do: 'write', path: 'good', text: 'x' });
    const bad = ['..', '../x', 'a/../b', '/etc/passwd', 'a//b', 'a/', './a', 'x'.repeat(256), 'a/'.repeat(2048) + 'a'];
    for (const path of [...bad, '.longshore-upload-x/y']) {
      const lines: readonly (readonly [string, string, unknown?])[] = [
        ['path', `GET /data/files?${at(path)}`],
        ['path', `DELETE /data/files?${at(path)}&recursive=true`],
        ['path', `GET /data/size?${at(path)}`],
        ['path', `GET /data/upload?${at(path)}&size=1&key=${'0'.repeat(16)}`],
        ['path', `GET /data/pack-url?${at(path)}`],
        ['from', 'POST /data/files/move', { from: path, to: 'x' }],
        ['to', 'POST /data/files/move', { from: 'good', to: path }],
      ];
      for (const [field, line, body] of lines) {
        const answer = await rest(line, { body });
        expect(codeOf(answer), `${line} ${path}`).toEqual([400, 'invalid_query']);
        expect(jsonOf(answer)['message'], line).toMatch(new RegExp(`^${field} must`));
      }
    }
    expect((await rest(`GET /data/files?${at('a\0b')}`)).status).toBe(400);
    expect((await rest('POST /data/files/move', { body: { from: 'a\0b', to: 'c' } })).status).toBe(422);
    expect(codeOf(await rest('GET /data%00/files'))).toEqual([400, 'bad_request']);
    expect(codeOf(await rest('DELETE /data/files'))).toEqual([400, 'invalid_query']);
    expect((await inside<string[]>({ do: 'list' })).includes('good')).toBe(true);
  });
});

describe('files', () => {
  test('are listed, counted, moved and removed while a container works on them', async ({
    world: { inside, rest },
  }) => {
    for (const name of ODD) await inside({ do: 'write', path: `odd/${name}`, text: name });
    await inside({ do: 'write', path: 'odd/sub/inner', text: '12345' });
    const whole = jsonOf<Listed>(await rest('GET /data/files?path=odd&recursive=true'));
    expect(whole.data.map(({ path }) => path).toSorted()).toEqual([...ODD, 'sub', 'sub/inner'].toSorted());
    const inner = whole.data.find(({ path }) => path === 'sub/inner');
    expect(inner).toMatchObject({ kind: 'file', size: 5, executable: false, addressable: true });
    expect(Math.abs(Date.parse(inner?.modified_at ?? '') - Date.now())).toBeLessThan(60_000);
    const paged: string[] = [];
    let cursor = '';
    do {
      const page = jsonOf<Listed>(await rest(`GET /data/files?path=odd&recursive=1&limit=3&cursor=${cursor}`));
      paged.push(...page.data.map(({ path }) => path));
      cursor = page.next;
    } while (cursor !== '');
    expect(paged).toEqual(whole.data.map(({ path }) => path));
    expect(codeOf(await rest('GET /data/files?cursor=Li4%3D'))).toEqual([400, 'invalid_cursor']);
    expect(jsonOf(await rest('GET /data/size?path=odd'))).toMatchObject({
      files: ODD.length + 1,
      folders: 1,
      next: '',
    });

    for (const name of ODD) {
      const to = `moved/${name} to`;
      const moved = await rest('POST /data/files/move', { body: { from: `odd/${name}`, to } });
      expect([moved.status, jsonOf(moved)], name).toEqual([200, { from: `odd/${name}`, to, kind: 'file' }]);
      expect(await inside({ do: 'read', path: to }), name).toMatchObject({ sha256: sha256(Buffer.from(name)) });
      expect(jsonOf(await rest(`DELETE /data/files?${at(to)}`)), name).toEqual({ removed: 1, complete: true });
      expect(codeOf(await rest(`DELETE /data/files?${at(to)}`)), name).toEqual([404, 'volume_file_not_found']);
    }
    await inside({ do: 'write', path: 'taken', text: 'x' });
    const onto = { from: 'odd/sub/inner', to: 'taken' };
    expect(codeOf(await rest('POST /data/files/move', { body: onto }))).toEqual([409, 'volume_file_exists']);
    expect((await rest('POST /data/files/move', { body: { ...onto, replace: true } })).status).toBe(200);
    await inside({ do: 'write', path: 'odd/sub/again', text: 'x' });
    expect(codeOf(await rest('DELETE /data/files?path=odd'))).toEqual([409, 'volume_folder_not_empty']);
    expect(jsonOf(await rest('DELETE /data/files?path=odd&recursive=true'))).toEqual({ removed: 3, complete: true });
    expect(jsonOf(await rest('DELETE /data/files?path=moved'))).toEqual({ removed: 1, complete: true });
  });

  test('behind links are neither shown nor touched', async ({ world: { inside, rest, on, run, local } }) => {
    await inside({ do: 'write', path: 'links/kept', text: 'kept' });
    await inside({ do: 'link', path: 'links/passwd', to: '/etc/passwd' });
    await inside({ do: 'link', path: 'links/etc', to: '/etc' });
    await inside({ do: 'link', path: 'links/loop', to: 'loop' });
    await inside({ do: 'fifo', path: 'links/pipe' });
    const listed = jsonOf<Listed>(await rest('GET /data/files?path=links&recursive=true'));
    expect(listed.data.map(({ path, kind }) => [path, kind])).toEqual([
      ['etc', 'link'],
      ['kept', 'file'],
      ['loop', 'link'],
      ['passwd', 'link'],
      ['pipe', 'other'],
    ]);
    for (const path of ['links/etc/passwd', 'links/loop/x', 'links/passwd/x']) {
      for (const line of [
        `GET /data/files?${at(path)}`,
        `DELETE /data/files?${at(path)}`,
        `GET /data/size?${at(path)}`,
      ]) {
        expect(codeOf(await rest(line)), line).toEqual([409, 'volume_file_irregular']);
      }
      const into = await rest('POST /data/files/move', { body: { from: 'links/kept', to: path } });
      expect(codeOf(into), path).toEqual([409, 'volume_file_irregular']);
    }
    const passwd = statSync('/etc/passwd').mtimeMs;
    const up = await run('cp', '/etc/hostname', 'data:links/etc/hosts');
    expect([up.code, up.stdout]).toEqual([1, '']);
    const over = await run('cp', '/etc/hostname', 'data:links/passwd');
    expect(over.code).toBe(1);
    expect(over.stderr).toContain('not an ordinary file');
    const down = await run('cp', 'data:links', local('links'));
    expect([down.code, down.stderr]).toEqual([0, 'left out 4 links and the like\n']);
    expect(treeOf(local('links'))).toEqual({ kept: sha256(Buffer.from('kept')) });
    expect(jsonOf(await rest('DELETE /data/files?path=links&recursive=true'))).toEqual({ removed: 6, complete: true });
    expect([existsSync('/etc/hosts'), statSync('/etc/passwd').mtimeMs]).toEqual([true, passwd]);
    expect(existsSync(on('links'))).toBe(false);
  });
});

describe('longshore volume', () => {
  test('prints tables and sentences', async ({ world: { run, inside } }) => {
    await inside({ do: 'write', path: 'golden/model.bin', size: 2048 });
    await inside({ do: 'write', path: 'golden/sub/note\u001b[2J', text: 'x' });
    const ids = (text: string): string =>
      text.replaceAll(/\b[0-9a-f]{8}(?:-[0-9a-f-]{27})?\b/g, 'ID').replaceAll(/\d+[smhd] ago/g, 'AGO');
    const said = async (...args: readonly string[]): Promise<string> => {
      const { code, stdout, stderr } = await run(...args);
      return `${code} ${ids(stdout)}${stderr === '' ? '' : `! ${ids(stderr)}`}`;
    };
    expect(await said('create', 'golden')).toBe('0 made volume golden\n');
    expect(await said('create', 'golden')).toBe('1 ! longshore: there is a volume golden already\n');
    expect(await said('list')).toBe(
      ['0 NAME    DRIVER  MACHINE   CREATED', 'data    local   ID  AGO', 'golden  local   -         AGO\n'].join('\n'),
    );
    expect(await said('show', 'data')).toBe(
      [
        '0 name         data',
        'id           ID',
        'driver       local',
        'machine      ID',
        'created      AGO',
        'deployments  files/v1',
        'containers   1\n',
      ].join('\n'),
    );
    expect(await said('ls', 'data:golden', '--recursive')).toBe(
      [
        '0 KIND    SIZE     CHANGED  PATH',
        'file    2.0 KiB  AGO   model.bin',
        'folder  -        AGO   sub/',
        'file    1 B      AGO   sub/note\\x1b[2J\n',
      ].join('\n'),
    );
    expect(await said('ls', 'golden:')).toBe('0 (none)\n');
    expect(await said('ls', 'data:absent')).toBe(
      '4 ! longshore: there is no data:absent: `longshore volume ls data:` shows what is\n',
    );
    expect(await said('ls', 'nothing:')).toBe(
      '4 ! longshore: there is no volume nothing in this workspace: `longshore volume list` shows them\n',
    );
    expect(await said('size', 'data:golden')).toMatch(
      /^0 data:golden has 2\.0 KiB in 2 files, 1 folder; [\d.]+ KiB on the disk\n$/,
    );
    expect(await said('mv', 'data:golden/model.bin', 'data:golden/sub/')).toBe(
      '0 moved data:golden/model.bin to data:golden/sub/model.bin\n',
    );
    expect(await said('rm', 'data:golden')).toBe(
      '1 ! longshore: data:golden is not empty: add --recursive to remove it with all in it\n',
    );
    expect(await said('rm', 'data:golden', '--recursive')).toBe('0 removed data:golden (4 files and folders)\n');
    expect(await said('rm', 'data:')).toMatch(/^2 ! longshore: data: is the whole volume: add --recursive/);
    expect(await said('cp', 'a', 'b')).toMatch(/^2 ! longshore: one side must be in a volume/);
    expect(await said('cp', 'data:a', 'golden:b')).toMatch(/^2 ! longshore: both sides are volumes/);
    expect(await said('cp', 'data:../a', '.')).toMatch(
      /^2 ! longshore: the path in data:\.\.\/a must not have \. or \.\./,
    );
    expect(await said('cp', 'absent', 'data:')).toMatch(/^1 ! longshore: cannot read absent/);
    expect(await said('cp', 'data:absent', '.')).toBe('4 ! longshore: there is no data:absent\n');
    expect(await said('delete', 'data')).toMatch(
      /^2 ! longshore: volume data has 3 files \(10 B\), 1 folder; without a terminal, say --yes: nothing was deleted/,
    );
    expect(await said('delete', 'data', '--yes')).toMatch(
      /^1 ! longshore: the volume is in use \(deployments mount it: files\/v1\): stop them first: `longshore deployment stop files\/v1`/,
    );
    expect(await said('delete', 'golden')).toBe('0 deleted volume golden\n');
  });

  test('prints what is kept, as text and with --json', async ({ world: { run, local } }) => {
    const folder = local('kept');
    for (const name of ['text', 'json']) writeLocal(join(folder, name), `of ${name}`);
    const own = [
      [folder, '<folder>'],
      [/ in \d+(?:\.\d+)? s$/gm, ' in <span>'],
      [/\d+(?:\.\d+)? \wi?B on the disk/g, '<bytes> on the disk'],
    ] as const;
    for (const [words, line] of [
      ['volume cp', `${folder} data:kept-*`],
      ['volume ls', 'data:kept-text --recursive'],
      ['volume size', 'data:kept-text'],
      ['volume mv', 'data:kept-text/* data:kept-text/moved-*'],
      ['volume rm', 'data:kept-text/moved-*'],
    ] as const) {
      const ran = (name: string) =>
        run(
          words.replace('volume ', ''),
          ...line.replaceAll('*', name).split(' '),
          ...(name === 'json' ? ['--json'] : []),
        );
      const [text, json] = [await ran('text'), await ran('json')];
      expect([words, text.code, json.code, json.stderr]).toEqual([words, 0, 0, '']);
      expectOutput(words, text, own);
      const document = steadyDocument(JSON.parse(json.stdout), own);
      expectDocument(`${verbFile(words)}.json`, withoutSizes(document));
    }
  });

  test('cp copies folders both ways, and a second time only what is new', async ({
    world: { run, inside, local, on },
  }) => {
    const from = local('tree');
    for (const name of ODD) writeLocal(join(from, 'odd', name), name);
    writeLocal(join(from, 'large.bin'), randomBytes(40 * MIB));
    writeLocal(join(from, 'middle.bin'), randomBytes(3 * MIB));
    writeLocal(join(from, 'empty file'), '');
    writeLocal(join(from, 'run.sh'), '#!/bin/sh');
    chmodSync(join(from, 'run.sh'), 0o755);
    utimesSync(join(from, 'run.sh'), 1_700_000_000.123, 1_700_000_000.123);
    mkdirSync(join(from, 'empty/inner'), { recursive: true });
    symlinkSync('/etc/passwd', join(from, 'link'));
    const up = await run('cp', from, 'data:copied', '--json');
    expect([up.code, up.stderr]).toEqual([0, 'left out a link or the like\n']);
    const count = ODD.length + 4;
    expect(JSON.parse(up.stdout)).toMatchObject({ files: count, same: 0, left_out: 1, failures: 0 });
    for (const name of ODD) {
      expect(await inside({ do: 'read', path: `copied/odd/${name}` }), name).toMatchObject({
        sha256: sha256(Buffer.from(name)),
        mode: '0o644',
      });
    }
    const { link: _link, ...files } = treeOf(from);
    expect(treeOf(on('copied'))).toEqual(files);
    const script = statSync(on('copied/run.sh'));
    expect([script.mode & 0o777, Math.round(script.mtimeMs)]).toEqual([0o755, 1_700_000_000_123]);

    const again = await run('cp', `${from}/`, 'data:/copied/');
    expect(again.stdout).toMatch(
      new RegExp(`^copied 0 files \\(0 B\\) to data:copied in .* s; ${count} files were there`),
    );
    const back = await run('cp', 'data:copied', local('back'));
    expect(back.stdout).toMatch(new RegExp(`^copied ${count} files \\(43\\.0 MiB\\) to .*/back in`));
    expect(treeOf(local('back'))).toEqual(files);
    expect(statSync(local('back/run.sh')).mode & 0o777).toBe(0o755);
    const backAgain = await run('cp', 'data:copied', local('back'), '--json');
    expect(JSON.parse(backAgain.stdout)).toMatchObject({ files: 0, same: count });
    const all = await run('cp', 'data:copied/odd', local('back/odd'), '--all', '--json');
    expect(JSON.parse(all.stdout)).toMatchObject({ files: ODD.length, same: 0 });
    expect([...leftIn(on('.')), ...leftIn(local('back'))]).toEqual([]);
  });

  test('cp takes single files, several of them, and folders among them', async ({ world: { run, local, on } }) => {
    writeLocal(local('one/a.txt'), 'a');
    writeLocal(local('one/b.txt'), 'b');
    writeLocal(local('one/sub/c.txt'), 'c');
    expect((await run('cp', local('one/a.txt'), 'data:single/new-name')).code).toBe(0);
    expect((await run('cp', local('one/a.txt'), 'data:single/')).code).toBe(0);
    expect((await run('cp', local('one/b.txt'), 'data:single')).code).toBe(0);
    expect((await run('cp', local('one/a.txt'), local('one/sub'), 'data:several')).code).toBe(0);
    const [a, b, c] = ['a', 'b', 'c'].map((text) => sha256(Buffer.from(text)));
    expect(treeOf(on('single'))).toEqual({ 'new-name': a, 'a.txt': a, 'b.txt': b });
    expect(treeOf(on('several'))).toEqual({ 'a.txt': a, sub: 'folder', 'sub/c.txt': c });
    const twice = await run('cp', local('one/a.txt'), on('single/a.txt'), 'data:twice');
    expect([twice.code, twice.stderr]).toEqual([
      2,
      'longshore: two sources have the name a.txt: copy them one by one\n',
    ]);

    expect((await run('cp', 'data:single/b.txt', local('got.txt'))).code).toBe(0);
    expect((await run('cp', 'data:single/b.txt', `${local('into')}/`)).code).toBe(0);
    expect((await run('cp', 'data:single/b.txt', 'data:several/sub', local('mixed'))).code).toBe(0);
    expect(readFileSync(local('got.txt'), 'utf8')).toBe('b');
    expect(treeOf(local('into'))).toEqual({ 'b.txt': b });
    expect(treeOf(local('mixed'))).toEqual({ 'b.txt': b, sub: 'folder', 'sub/c.txt': c });
    expect((await run('cp', 'data:', local('everything'), '--quiet')).code).toBe(0);
    expect(treeOf(local('everything'))).toMatchObject({ 'single/new-name': a });
  });

  test('cp fills a volume before any container mounts it', async ({ world: { run, rest, local } }) => {
    writeLocal(local('seed/a'), 'a');
    expect((await run('create', 'fresh')).code).toBe(0);
    expect((await run('cp', local('seed'), 'fresh:x')).code).toBe(0);
    expect(jsonOf<Listed>(await rest('GET /fresh/files?path=x')).data).toMatchObject([{ path: 'a', size: 1 }]);
    expect(await run('delete', 'fresh', '--yes')).toMatchObject({ stdout: 'deleted volume fresh with 2 entries\n' });
  });

  test('cp carries thousands of small files', async ({ world: { run, local, on } }) => {
    const from = local('small');
    for (let index = 0; index < 2_000; index += 1)
      writeLocal(join(from, `${index % 20}`, `${index}`), randomBytes(4096));
    const up = await run('cp', from, 'data:small', '--json');
    expect(JSON.parse(up.stdout)).toMatchObject({ files: 2_000, bytes: 2_000 * 4096 });
    expect(treeOf(on('small'))).toEqual(treeOf(from));
    const back = await run('cp', 'data:small', local('small-back'), '--json');
    expect(JSON.parse(back.stdout)).toMatchObject({ files: 2_000 });
    expect(treeOf(local('small-back'))).toEqual(treeOf(from));
    process.stdout.write(`2,000 files: up ${secondsOf(up)} s, down ${secondsOf(back)} s\n`);
  });
});

const secondsOf = ({ stdout }: Ended): number => (JSON.parse(stdout) as { seconds: number }).seconds;

/** A large file without blocks on the disk. */
function sparse(path: string, size: number): void {
  writeLocal(path, randomBytes(1000));
  truncateSync(path, size);
}

/** Bytes of files that are on their way, below a folder. */
function onTheWay(folder: string): number {
  return leftIn(folder).reduce((sum, path) => {
    const found = lstatSync(join(folder, path), { throwIfNoEntry: false });
    return sum + (found?.isFile() === true ? found.size : 0);
  }, 0);
}

describe('a copy that is interrupted', () => {
  const SIZE = 512 * MIB;

  test('into the volume: nothing is seen, and the next one goes on', async ({ world: { begin, run, local, on } }) => {
    const source = local('cut.bin');
    sparse(source, SIZE);
    const running = begin('cp', source, 'data:cut/cut.bin');
    await waitFor(() => onTheWay(on('cut')) > 64 * MIB, 'a part has arrived', 60_000);
    running.interrupt();
    expect(await running.ended).toMatchObject({
      code: 130,
      stderr: 'longshore: stopped: the same command goes on where it was\n',
    });
    expect(existsSync(on('cut/cut.bin'))).toBe(false);
    const arrived = onTheWay(on('cut'));
    expect(arrived).toBeGreaterThan(64 * MIB);
    const resumed = await run('cp', source, 'data:cut/cut.bin', '--json');
    expect(JSON.parse(resumed.stdout)).toMatchObject({ files: 1, bytes: SIZE });
    expect(statSync(on('cut/cut.bin')).size).toBe(SIZE);
    expect(leftIn(on('cut'))).toEqual([]);
  });

  test('into the volume: the next one waits while the request that was cut still has the upload', async ({
    world: { begin, run, local, on },
  }) => {
    const source = local('held.bin');
    sparse(source, SIZE);
    const running = begin('cp', source, 'data:held/held.bin');
    await waitFor(() => onTheWay(on('held')) > 64 * MIB, 'a part has arrived', 60_000);
    running.interrupt();
    expect(await running.ended).toMatchObject({ code: 130 });
    const [upload = ''] = leftIn(on('held')).filter((path) => path.includes('/'));
    const holder = spawn('flock', [join(on('held'), upload), 'sleep', '4'], { stdio: 'ignore' });
    const resumed = await run('cp', source, 'data:held/held.bin', '--json');
    expect(JSON.parse(resumed.stdout)).toMatchObject({ files: 1, bytes: SIZE, failures: 0 });
    expect(holder.exitCode).toBe(0);
    expect(leftIn(on('held'))).toEqual([]);
  });

  test('out of the volume: nothing is seen, and the next one goes on', async ({ world: { begin, run, local, on } }) => {
    const target = local('down/cut.bin');
    mkdirSync(local('down'));
    const running = begin('cp', 'data:cut/cut.bin', target);
    await waitFor(() => onTheWay(local('down')) > 64 * MIB, 'a part has arrived', 60_000);
    running.interrupt();
    expect(await running.ended).toMatchObject({ code: 130 });
    expect(existsSync(target)).toBe(false);
    expect(onTheWay(local('down'))).toBeGreaterThan(64 * MIB);
    const resumed = await run('cp', 'data:cut/cut.bin', target, '--json');
    expect(JSON.parse(resumed.stdout)).toMatchObject({ files: 1, bytes: SIZE });
    expect(sha256(readFileSync(target))).toBe(sha256(readFileSync(on('cut/cut.bin'))));
    expect(leftIn(local('down'))).toEqual([]);
  });

  test('by a kill of the agent: it goes on by itself, both ways, and leaves nothing', async ({
    platform,
    world: { begin, inside, local, on },
  }) => {
    const source = local('killed.bin');
    sparse(source, SIZE);
    const up = begin('cp', source, local('one/a.txt'), 'data:killed/');
    await waitFor(() => onTheWay(on('killed')) > 32 * MIB, 'a part has arrived', 60_000);
    await platform.agent.kill();
    expect(existsSync(on('killed/killed.bin'))).toBe(false);
    await platform.agent.start();
    expect(await up.ended).toMatchObject({ code: 0, stdout: expect.stringContaining('copied 2 files') });
    expect(statSync(on('killed/killed.bin')).size).toBe(SIZE);
    expect(leftIn(on('killed'))).toEqual([]);

    const down = begin('cp', 'data:killed', local('killed-back'));
    await waitFor(() => onTheWay(local('killed-back')) > 32 * MIB, 'a part has arrived', 60_000);
    await platform.agent.kill();
    await platform.agent.start();
    expect(await down.ended).toMatchObject({ code: 0 });
    expect(statSync(local('killed-back/killed.bin')).size).toBe(SIZE);
    expect(leftIn(local('killed-back'))).toEqual([]);
    await inside({ do: 'list' });
  });
});

describe('above the bound of the workspace', () => {
  test('uploads end and leave nothing, everything is still read, and there is room again once files are removed', async ({
    platform,
    world: { run, rest, local, on },
  }) => {
    const limits = `/api/v1/workspace/${platform.workspaceId}/limits`;
    const bound = async (bytes: number | null): Promise<void> => {
      const answer = await platform.call(limits, { method: 'PUT', body: { bytes: { volumes: bytes } } });
      expect(answer.status).toBe(200);
    };
    const used = async (): Promise<number> => {
      const { usage } = jsonOf<{ usage: { volume_bytes: number } }>(await platform.call(limits));
      return usage.volume_bytes;
    };
    const put = async (url: string, bytes: Buffer): Promise<readonly unknown[]> => {
      const answer = await fetch(url, { method: 'PUT', body: new Uint8Array(bytes) });
      return [answer.status, ((await answer.json()) as Record<string, unknown>)['code']];
    };
    const urlOf = async (route: string): Promise<string> => jsonOf<{ url: string }>(await rest(route)).url;
    const before = await used();
    writeLocal(local('fill/fill.bin'), randomBytes(8 * MIB));
    writeLocal(local('more/more.bin'), randomBytes(MIB));
    expect((await run('cp', local('fill'), 'data:bound')).code).toBe(0);
    await waitFor(async () => (await used()) >= before + 8 * MIB, 'the files are counted', 60_000);
    const [early, earlyPack] = [
      await urlOf(`GET /data/file-url?${at('bound/early')}&method=PUT`),
      await urlOf(`GET /data/pack-url?${at('bound')}&method=PUT`),
    ];

    // A sender that says how much it brings is refused before the bound, too.
    await bound((await used()) + MIB);
    expect(await put(early, randomBytes(2 * MIB))).toEqual([507, 'volume_quota_reached']);
    // Files of a pack that do not fit are refused.
    writeLocal(local('much/much.bin'), randomBytes(32 * MIB));
    const ended = await run('cp', local('much'), 'data:bound/much');
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('much.bin');
    expect(ended.stderr).toContain('the limit bytes.volumes of this workspace leaves room for');
    await rest(`DELETE /data/files?${at('bound/much')}&recursive=true`);

    const full = (await used()) - 4 * MIB;
    await bound(full);
    const refused = await run('cp', local('more'), 'data:bound/new');
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain(`its limit bytes.volumes is ${full}`);
    expect(refused.stderr).toContain('longshore volume rm');
    for (const route of [`file-url?${at('bound/x')}`, `pack-url?${at('bound')}`])
      expect(codeOf(await rest(`GET /data/${route}&method=PUT`))).toEqual([507, 'volume_quota_reached']);
    expect(await put(early, randomBytes(10))).toEqual([507, 'volume_quota_reached']);
    expect(await put(earlyPack, randomBytes(10))).toEqual([507, 'volume_quota_reached']);
    expect(Object.keys(treeOf(on('bound')))).toEqual(['fill.bin']);
    expect(leftIn(on('.'))).toEqual([]);
    expect((await run('cp', 'data:bound', local('bound-back'))).code).toBe(0);
    expect(treeOf(local('bound-back'))).toEqual(treeOf(local('fill')));

    expect((await run('rm', 'data:bound/fill.bin')).code).toBe(0);
    const copied = async (): Promise<boolean> => (await run('cp', local('more'), 'data:bound/new')).code === 0;
    await waitFor(copied, 'there is room again', 60_000);
    expect(treeOf(on('bound/new'))).toEqual(treeOf(local('more')));
    await bound(null);
  });
});

test('a volume is deleted once nothing mounts it, with files of any user', async ({
  platform,
  world: { app, inside, rest, run, on },
}) => {
  await inside({ do: 'write', path: 'private/secret', text: 'x' });
  await platform.gateway(`/deployments/${app.deploymentId}/stop`, {});
  await waitFor(async () => jsonOf(await rest('GET /data'))['containers'] === 0, 'its container has ended', 60_000);
  const deleted = await run('delete', 'data', '--yes');
  expect([deleted.code, deleted.stderr]).toEqual([0, '']);
  expect(readdirSync(on('.'))).toEqual([]);
  expect(codeOf(await rest('GET /data'))).toEqual([404, 'volume_not_found']);
  const started = await platform.call(`/api/v1/gateway/deployments/${app.deploymentId}/start`, { body: {} });
  expect(jsonOf(started)).toEqual({ ok: false, errMsg: 'the volume at data was deleted: deploy the app again' });
  const again = await platform.call('/api/v1/gateway/stubs/deploy', { body: { stubId: app.stubId, name: 'files' } });
  expect(jsonOf(again)).toMatchObject({ ok: false });
  expect(again.error).toBe('the volume at data was deleted: deploy the app again');
});
