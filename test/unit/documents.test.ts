// Documents that say where things are: their links lead somewhere, and the paths that they name exist.
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ROOT, repositoryPaths } from '../helpers/repository.ts';

const PATHS = new Set([...readdirSync(ROOT), ...repositoryPaths().map((path) => path.replace(/\/$/, ''))]);

const documents = [...PATHS].filter((path) => path.endsWith('.md'));
/** Documents that describe the code as it is; others name paths of their time, or of a reader's machine. */
const maps = documents.filter((path) =>
  /^(?:README|ARCHITECTURE|docs\/(?:glossary|invariants)|(?:scheduler|agent)\/.*)\.md$/.test(path),
);
const textOf = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

/** Whether a file or folder of the repository has a path that ends so. */
function isThere(named: string): boolean {
  const path = named.replace(/\/$/, '');
  if (PATHS.has(path)) return true;
  for (const known of PATHS) if (known.endsWith(`/${path}`)) return true;
  return false;
}

/** The text without its blocks of code. */
const proseOf = (path: string): string => textOf(path).replaceAll(/^([ \t]*)(```|~~~)[^]*?^[ \t]*\2/gm, '');

/** Names by which links reach the headings of a document. */
function anchorsOf(path: string): ReadonlySet<string> {
  const names = [...proseOf(path).matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .trim()
      .toLowerCase()
      .replaceAll(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );
  return new Set(names);
}

describe('documents', () => {
  test('link to files that exist', () => {
    const lost: string[] = [];
    for (const document of documents) {
      for (const [, target = ''] of textOf(document).matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)) {
        if (/^[a-z]+:/.test(target)) continue;
        const path = normalize(join(dirname(document), target)).replace(/\/$/, '');
        if (!PATHS.has(path)) lost.push(`${document}: ${target}`);
      }
    }
    expect(lost).toEqual([]);
  });

  test('link to headings that exist', () => {
    const lost: string[] = [];
    for (const document of documents) {
      for (const [, target = '', anchor = ''] of proseOf(document).matchAll(/\]\(([^)#\s]*)#([^)\s]+)\)/g)) {
        if (/^[a-z]+:/.test(target)) continue;
        const path = target === '' ? document : normalize(join(dirname(document), target));
        if (documents.includes(path) && !anchorsOf(path).has(anchor)) lost.push(`${document}: ${target}#${anchor}`);
      }
    }
    expect(lost).toEqual([]);
  });

  test('that are maps of the code name paths that exist', () => {
    const lost: string[] = [];
    for (const document of maps) {
      for (const [, named = ''] of textOf(document).matchAll(
        /`((?:[\w-]+\/)*[\w.-]+(?:\.(?:ts|lua|mjs|sql|proto)|\/))`/g,
      ))
        if (!isThere(named)) lost.push(`${document}: ${named}`);
    }
    expect(lost).toEqual([]);
  });

  test('begin with the map, which links the README of every room', () => {
    const map = textOf('ARCHITECTURE.md');
    const rooms = [...PATHS].filter((path) => /^(?:scheduler|agent)\/[^/]+\/README\.md$/.test(path));
    expect(rooms.filter((path) => !map.includes(`(${path})`))).toEqual([]);
  });
});
