// The modules that an agent has loaded before it does anything: a machine pays for them for as long as it runs.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const LOADED = `await import(process.argv[1]); process.stdout.write(JSON.stringify(process.moduleLoadList));`;

test("an agent does not load Node's fetch, which takes 7 MiB and which it never uses", async () => {
  const main = new URL('../../../agent/process.ts', import.meta.url).href;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', LOADED, main]);
  const loaded = JSON.parse(stdout) as readonly string[];
  expect(loaded).toContain('NativeModule http');
  expect(loaded.filter((name) => name.includes('undici'))).toEqual([]);
}, 60_000);
