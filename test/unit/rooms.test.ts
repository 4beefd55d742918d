// The READMEs of the rooms beside the code: short, and without names of files that do not exist.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT, repositoryPaths } from '../helpers/repository.ts';

/** Names in code are not words. */
const MOST_WORDS = 500;
/** A name of a file, or of a folder: the latter ends with a slash. */
const NAME = /^[\w.@/-]+(?:\.(?:c|css|json|jsonl|lua|md|mjs|proto|py|sql|tsx?)|\/)$/;

const paths = repositoryPaths();
const readmes = paths.filter((path) =>
  /^(?:agent|bench|cli|console|python|scheduler|shared|test)\/(?:.*\/)?README\.md$/.test(path),
);

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
