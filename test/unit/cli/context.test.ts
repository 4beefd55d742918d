import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  chooseContext,
  contextFilePath,
  deleteContext,
  readContexts,
  resolveContext,
  saveContext,
} from '#cli/context.ts';

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
    expect(await resolveContext({}, env())).toEqual({ ...local, name: 'local' });
  });

  test('has the name of the one that its URL came from, and none where that came from elsewhere', async () => {
    await saveContext(path, 'local', local);
    await saveContext(path, 'local-2', { ...local, url: 'http://127.0.0.1:9' });
    expect((await resolveContext({ context: 'local' }, env())).name).toBe('local');
    expect((await resolveContext({ token: 'eyJ.mine' }, env())).name).toBe('local-2');
    expect((await resolveContext({ url: 'http://127.0.0.1:9' }, env())).name).toBeUndefined();
    expect((await resolveContext({}, env({ LONGSHORE_URL: local.url }))).name).toBeUndefined();
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

  test('sends the token of a context to no other address', async () => {
    await saveContext(path, 'local', local);
    const elsewhere = 'http://other:1';
    for (const [options, more] of [
      [{ url: elsewhere }, {}],
      [{ url: elsewhere, context: 'local' }, {}],
      [{}, { LONGSHORE_URL: elsewhere }],
      [{ context: 'local' }, { LONGSHORE_URL: elsewhere }],
    ] as const)
      await expect(resolveContext(options, env(more))).rejects.toThrow(
        'no token for http://other:1 is known, and the token of the context local goes to http://127.0.0.1:1994 alone: `longshore login http://other:1` keeps one, or give it with --token',
      );
    expect(await resolveContext({ url: elsewhere, token: 'eyJ.mine' }, env())).toMatchObject({ token: 'eyJ.mine' });
  });

  test('sends LONGSHORE_TOKEN where LONGSHORE_URL is, and anywhere when that is not set', async () => {
    const pair = { LONGSHORE_URL: 'http://env:1', LONGSHORE_TOKEN: 'eyJ.env' };
    await expect(resolveContext({ url: 'http://other:1' }, env(pair))).rejects.toThrow(
      'no token for http://other:1 is known, and LONGSHORE_TOKEN goes to LONGSHORE_URL alone',
    );
    expect((await resolveContext({ url: 'http://ENV:1/' }, env(pair))).token).toBe('eyJ.env');
    const alone = env({ LONGSHORE_TOKEN: 'eyJ.env' });
    expect((await resolveContext({ url: 'http://other:1' }, alone)).token).toBe('eyJ.env');
    await saveContext(path, 'local', local);
    expect(await resolveContext({}, alone)).toMatchObject({ url: local.url, token: 'eyJ.env', workspaceId: '' });
  });

  test('takes the context of a URL that is given, with its workspace and its CA file', async () => {
    const gpu = { url: 'https://gpu.example', token: 'eyJ.gpu', workspaceId: 'w-2', caFile: '/ca.pem' };
    await saveContext(path, 'gpu', gpu);
    await saveContext(path, 'local', local);
    expect(await resolveContext({ url: 'https://GPU.example:443/' }, env())).toEqual({
      ...gpu,
      url: 'https://GPU.example:443',
    });
    expect((await resolveContext({}, env({ LONGSHORE_URL: gpu.url }))).token).toBe('eyJ.gpu');
    expect((await resolveContext({ url: local.url }, env())).token).toBe(local.token);
  });

  test('asks which workspace is meant where several contexts are of a URL and none of them is current', async () => {
    for (const name of ['team-a', 'team-b']) await saveContext(path, name, { ...local, token: `eyJ.${name}` });
    expect((await resolveContext({ url: local.url }, env())).token).toBe('eyJ.team-b');
    await saveContext(path, 'gpu', { ...local, url: 'https://gpu.example' });
    await expect(resolveContext({ url: local.url }, env())).rejects.toThrow(
      'the contexts team-a, team-b are of http://127.0.0.1:1994: choose one with --context',
    );
    expect((await resolveContext({ url: local.url, context: 'team-a' }, env())).token).toBe('eyJ.team-a');
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
    await expect(deleteContext('gpu', env())).rejects.toThrow('no context is named gpu');
  });

  test('is none any more when the current one was deleted, and stays when another was', async () => {
    for (const name of ['local', 'remote', 'old']) await saveContext(path, name, local);
    expect(await deleteContext('local', env())).toBe(false);
    expect(await readContexts(path)).toEqual({ current: 'old', contexts: { remote: local, old: local } });
    expect(await deleteContext('old', env())).toBe(true);
    expect(await readContexts(path)).toEqual({ current: '', contexts: { remote: local } });
    await expect(resolveContext({}, env())).rejects.toThrow('no installation is known');
  });

  test('with a URL that is none is an error', async () => {
    await expect(resolveContext({ url: 'localhost:1994', token: 't' }, env())).rejects.toThrow('is not a URL');
  });
});
