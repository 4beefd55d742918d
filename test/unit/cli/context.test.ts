import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { chooseContext, contextFilePath, readContexts, resolveContext, saveContext } from '#cli/context.ts';

let directory = '';
let path = '';
const local = { url: 'http://127.0.0.1:1994', token: 'eyJ.local', workspaceId: 'w-1' };

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'ls-ctx-'));
  path = join(directory, 'deep', 'contexts.json');
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

describe('the context file', () => {
  test('is readable by its owner only, in a private directory, and nothing is left beside it', async () => {
    await saveContext(path, 'local', local);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(directory, 'deep')).mode & 0o777).toBe(0o700);
    expect(readdirSync(join(directory, 'deep'))).toEqual(['contexts.json']);
  });

  test('stays private when an earlier one was open to others', async () => {
    path = join(directory, 'contexts.json');
    writeFileSync(path, JSON.stringify({ current: '', contexts: {} }), { mode: 0o644 });
    await saveContext(path, 'local', local);
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  test('keeps the other contexts when one is added, and makes the new one current', async () => {
    await saveContext(path, 'local', local);
    await saveContext(path, 'remote', { ...local, url: 'https://gpu.example', token: 'eyJ.remote' });
    const file = await readContexts(path);
    expect(file.current).toBe('remote');
    expect(file.contexts['local']).toEqual(local);
  });

  test('that is damaged is an error naming it, and is not overwritten', async () => {
    path = join(directory, 'contexts.json');
    writeFileSync(path, '{"current": 1}');
    await expect(saveContext(path, 'local', local)).rejects.toThrow(`the context file ${path} is damaged`);
    expect(readFileSync(path, 'utf8')).toBe('{"current": 1}');
  });

  test('is named by LONGSHORE_CONTEXT_FILE, else below the home directory', () => {
    expect(contextFilePath({ LONGSHORE_CONTEXT_FILE: '/x/c.json' })).toBe('/x/c.json');
    expect(contextFilePath({ HOME: '/home/ada' })).toBe('/home/ada/.config/longshore/contexts.json');
  });
});

describe('the context of a command', () => {
  const env = (more: Record<string, string> = {}): Record<string, string> => ({
    LONGSHORE_CONTEXT_FILE: path,
    ...more,
  });

  test('is the current one of the file', async () => {
    await saveContext(path, 'local', local);
    expect(await resolveContext({}, env())).toEqual(local);
  });

  test('takes URL and token from the environment before the file, and does not claim the workspace of another token', async () => {
    await saveContext(path, 'local', local);
    const context = await resolveContext({}, env({ LONGSHORE_URL: 'http://other:1/', LONGSHORE_TOKEN: 'eyJ.mine' }));
    expect(context).toEqual({ url: 'http://other:1', token: 'eyJ.mine', workspaceId: '' });
  });

  test('takes flags before the environment', async () => {
    const context = await resolveContext(
      { url: 'http://flag:1', token: 'eyJ.flag' },
      env({ LONGSHORE_URL: 'http://env:1', LONGSHORE_TOKEN: 'eyJ.env' }),
    );
    expect(context).toMatchObject({ url: 'http://flag:1', token: 'eyJ.flag' });
  });

  test('that nobody knows is an error with the cure', async () => {
    await expect(resolveContext({}, env())).rejects.toThrow(
      'start one with `longshore up` (in a checkout: `npm start`), or set LONGSHORE_URL',
    );
  });

  test('of an unknown name is an error naming those that exist', async () => {
    await saveContext(path, 'local', local);
    await expect(resolveContext({ context: 'gpu' }, env())).rejects.toThrow(
      /no context is named gpu .*\(there: local\)/,
    );
    await expect(chooseContext('gpu', env())).rejects.toThrow('no context is named gpu');
  });

  test('with a URL that is none is an error', async () => {
    await expect(resolveContext({ url: 'localhost:1994', token: 't' }, env())).rejects.toThrow('is not a URL');
  });
});
