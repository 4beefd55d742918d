import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { contextNameFor } from '#cli/commands/login.ts';
import { listTemplates, starterApp } from '#cli/templates.ts';
import { ROOT } from '../../helpers/repository.ts';

const folders = readdirSync(join(ROOT, 'examples'), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name);

describe('templates', () => {
  test('are all folders of examples/', () => {
    expect(
      listTemplates()
        .map(({ name }) => name)
        .toSorted(),
    ).toEqual(folders.toSorted());
  });

  test.for(folders)('%s says how it is tried, for its own folder', (name) => {
    const app = starterApp(name, 'renamed');
    expect(app.files).not.toEqual([]);
    expect(app.tries).not.toEqual([]);
    const python = app.files.filter(({ path }) => path.endsWith('.py')).map(({ content }) => content.toString('utf8'));
    expect([...app.tries, ...python].filter((text) => text.includes(`examples/${name}/`))).toEqual([]);
  });

  test('carry the name of the app, in the code and in the calls', () => {
    const app = starterApp('secrets', 'receipts');
    expect(app.deployment).toBe('receipts');
    expect(app.files[0]?.content.toString('utf8')).toContain("name='receipts'");
    expect(app.tries).toEqual([
      'openssl rand -hex 32 | longshore secret set SIGNING_KEY',
      'longshore deploy app.py',
      expect.stringMatching(/^longshore invoke receipts --data /),
    ]);
  });

  test('with several deployments keep their names', () => {
    const app = starterApp('batch', 'receipts');
    expect(app.deployment).toBeUndefined();
    expect(app.files[0]?.content.toString('utf8')).not.toContain('receipts');
  });
});

test('a context is named after its host, and never takes the name of another address or workspace', () => {
  const context = (url: string, workspaceId = 'w') => ({ url, token: 't', workspaceId });
  const w = { id: 'w', name: 'team' };
  const file = { current: 'b', contexts: { a: context('https://x.example'), b: context('https://x.example') } };
  expect(contextNameFor('https://x.example', file, w)).toBe('b');
  expect(contextNameFor('https://x.example', file, { id: 'v', name: 'other' })).toBe('other');
  expect(contextNameFor('https://x.example', file, { id: 'v', name: 'a' })).toBe('a-2');
  expect(contextNameFor('https://x.example', file, { id: 'v', name: '' })).toBe('x.example');
  const unknown = { current: '', contexts: { a: context('https://x.example', '') } };
  expect(contextNameFor('https://x.example', unknown, w)).toBe('a');
  expect(contextNameFor('https://y.example:8443', file, w)).toBe('y.example');
  const taken = {
    current: '',
    contexts: { 'y.example': context('https://y.example', 'v'), '::1': context('http://a') },
  };
  expect(contextNameFor('https://y.example:9443', taken, w)).toBe('y.example-2');
  expect(contextNameFor('http://[::1]:1994', taken, w)).toBe('::1-2');
});
