// Clients in TypeScript and Python, generated from docs/openapi.json by published generators, against a real scheduler.
import { copyFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { OPENAPI_FILE, pythonGenerator, typescriptGenerator } from '../helpers/api-clients.ts';
import { tempDirectory } from '../helpers/services.ts';
import { aPlatform } from '../integration/verbs-fixture.ts';
import type { Platform } from '../integration/verbs-fixture.ts';

const CALLS = resolve(import.meta.dirname, '..', 'fixtures', 'api-clients');
const TSC = resolve(import.meta.dirname, '..', '..', 'node_modules', '.bin', 'tsc');

let platform: Platform;
let directory: ReturnType<typeof tempDirectory>;
beforeAll(async () => {
  directory = tempDirectory('clients');
  platform = await aPlatform();
  await platform.deploy('called', { stubType: 'taskqueue/deployment' });
  await platform.call('POST /taskqueue/called', {});
});
afterAll(async () => {
  await platform.stop();
  directory.remove();
});

const env = () => ({ API_URL: `http://${platform.address}`, API_TOKEN: platform.own.token });
const said = (language: string, pages: number) => ({
  ws: platform.own.workspaceId,
  found: ['a', 'b', 'c', 'd', 'e'].map((letter) => `${language}-${letter}`),
  pages,
  taken: [409, 'stack_exists'],
  missing: [404, 'task_not_found'],
  tasks: 1,
  volume: [true, `from-${language}`],
  stranger: [401, 'unauthorized'],
});

test('a client in TypeScript has types that hold, and its calls answer', { timeout: 400_000 }, async () => {
  const tools = await typescriptGenerator();
  const folder = directory.path;
  await execa(join(tools, 'node_modules', '.bin', 'openapi-typescript'), [
    OPENAPI_FILE,
    '-o',
    join(folder, 'api.d.ts'),
  ]);
  copyFileSync(join(CALLS, 'calls.mts'), join(folder, 'calls.mts'));
  symlinkSync(join(tools, 'node_modules'), join(folder, 'node_modules'));
  writeFileSync(join(folder, 'node.d.ts'), 'declare const process: any;\n');
  const compilerOptions = {
    strict: true,
    noEmit: true,
    module: 'nodenext',
    target: 'esnext',
    lib: ['esnext', 'dom'],
    types: [],
    allowImportingTsExtensions: true,
  };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.mts', '*.d.ts'] }));
  const checked = await execa(TSC, ['--project', folder], { reject: false, all: true });
  expect(checked.all).toBe('');
  const { stdout } = await execa(process.execPath, [join(folder, 'calls.mts')], { env: env() });
  expect(JSON.parse(stdout)).toEqual(said('typescript', 3));
});

test('a client in Python is generated whole, and its calls answer', { timeout: 400_000 }, async () => {
  const bin = join(await pythonGenerator(), 'bin');
  const output = join(directory.path, 'generated_client');
  const args = ['generate', '--path', OPENAPI_FILE, '--meta', 'none', '--output-path', output];
  const generated = await execa(join(bin, 'openapi-python-client'), args, {
    all: true,
    env: { PATH: `${bin}:${process.env['PATH'] ?? ''}` },
  });
  // The generator knows no bodies but JSON, forms and text; calls with others are left out or taken without them.
  const left = generated.all.match(/^(?:Unsupported content type|.*Unsupported content_type) .*$/gm) ?? [];
  const warned = generated.all.match(/^(?:WARNING|ERROR) .*$/gm) ?? [];
  expect(generated.all).not.toMatch(/^ERROR/m);
  expect(warned.length).toBe(left.length);
  copyFileSync(join(CALLS, 'calls.py'), join(directory.path, 'calls.py'));
  const { stdout } = await execa(join(bin, 'python'), [join(directory.path, 'calls.py')], { env: env() });
  // The stacks of the first client are there, too.
  expect(JSON.parse(stdout)).toEqual(said('python', 5));
});
