// The version has one home, package.json. Every other place that names it follows.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

test.each([
  ['package-lock.json', /^\{\s+"name": "longshore",\s+"version": "(.*)"/],
  ['python/longshore/__init__.py', /^__version__ = '(.*)'$/m],
  ['python/pyproject.toml', /^version = "(.*)"$/m],
  ['CHANGELOG.md', /^## Unreleased$[^]*?^## (\S+) - \d{4}-\d\d-\d\d$/m],
  ['docs/packages.md', /longshore-agent_(.*)_amd64/],
  ['docs/packages.md', /longshore-scheduler_(.*)_amd64/],
  ['docs/packages.md', /longshore-scheduler:(.*) dist/],
  ['docs/packages.md', /LONGSHORE_VERSION=(.*) docker/],
])('%s has the version of package.json (%s)', (path, place) => {
  const { version } = JSON.parse(read('package.json')) as { readonly version: string };
  expect(place.exec(read(path))?.[1]).toBe(version);
});
