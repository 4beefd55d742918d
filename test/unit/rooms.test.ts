// The READMEs of the rooms beside the code: short, and without names of files that do not exist.
import { readFileSync, readdirSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '..', '..');
const TOPS = [
  'agent',
  'bench',
  'bin',
  'cli',
  'deploy',
  'docs',
  'examples',
  'python',
  'scheduler',
  'scripts',
  'shared',
  'systemd',
  'test',
];
/** Names in code are not words. */
const MOST_WORDS = 500;
/** A name of a file, or of a folder: the latter ends with a slash. */
const NAME = /^[\w.@/-]+(?:\.(?:c|json|jsonl|lua|md|mjs|proto|py|sql|ts)|\/)$/;

const paths = TOPS.flatMap(below);
const readmes = paths.filter((path) =>
  /^(?:agent|bench|cli|python|scheduler|shared|test)\/(?:.*\/)?README\.md$/.test(path),
);

function below(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.parentPath.includes('node_modules'))
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)) + (entry.isDirectory() ? '/' : ''))
    .concat(`${folder}/`);
}

test('every room of the scheduler and of the agent has a README', () => {
  const rooms = paths.filter((path) => /^(?:agent|scheduler)\/[a-z-]+\/$/.test(path) && path !== 'agent/probe/');
  expect(rooms.filter((room) => !readmes.includes(`${room}README.md`))).toEqual([]);
});

test.for([...readmes, 'ARCHITECTURE.md'])('%s names files that exist', (readme) => {
  const text = readFileSync(join(ROOT, readme), 'utf8');
  const named = [...text.matchAll(/`([^`\n]+)`|\]\(([^)\s]+)\)/g)]
    .map(([, code, link]) => (code ?? link ?? '').replace(/^(?:\.{1,2}\/)+/, ''))
    .filter((name) => NAME.test(name));
  expect(named.filter((name) => !paths.some((path) => path === name || path.endsWith(`/${name}`)))).toEqual([]);
});

test.for(readmes)(`%s has at most ${MOST_WORDS} words`, (readme) => {
  const words = readFileSync(join(ROOT, readme), 'utf8')
    .replaceAll(/`[^`\n]+`/g, '')
    .split(/\s+/);
  expect(words.filter((word) => /\w/.test(word)).length).toBeLessThanOrEqual(MOST_WORDS);
});
