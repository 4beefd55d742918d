import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { HTTP_STATUS, INTERNAL, levelOf } from '../../../scheduler/api/http/error-map.ts';

const ROOT = join(import.meta.dirname, '../../..');
/** `new AppError('code'` and its subclass, also with the code on a line of its own. */
const THROWN = /new (?:AppError|StartupError)\(\s*'([a-z][a-z0-9_]*)'/g;

function codesInSource(): Set<string> {
  const codes = new Set<string>();
  for (const top of ['scheduler', 'agent', 'cli', 'shared']) {
    for (const file of readdirSync(join(ROOT, top), { recursive: true, encoding: 'utf8' })) {
      if (!file.endsWith('.ts')) continue;
      for (const [, code] of readFileSync(join(ROOT, top, file), 'utf8').matchAll(THROWN)) {
        if (code !== undefined) codes.add(code);
      }
    }
  }
  return codes;
}

const documented = [...readFileSync(join(ROOT, 'docs/errors.md'), 'utf8').matchAll(/^\| `([a-z0-9_]+)` \|/gm)].map(
  ([, code]) => code ?? '',
);

test('docs/errors.md lists every error code of the source, and no other', () => {
  const used = new Set([...codesInSource(), ...Object.keys(HTTP_STATUS), INTERNAL.code]);
  expect(documented.toSorted()).toEqual([...used].toSorted());
});

test('docs/errors.md gives the status that the surfaces answer with', () => {
  const text = readFileSync(join(ROOT, 'docs/errors.md'), 'utf8');
  for (const [code, status] of Object.entries(HTTP_STATUS)) {
    expect(text).toMatch(new RegExp(`^\\| \`${code}\` \\| ${status} \\|`, 'm'));
  }
});

test('mistakes of callers and failures of containers are no errors of the scheduler in its log', () => {
  const levels = [
    'container_failed',
    'port_refused',
    'not_implemented',
    'machine_silent',
    'internal',
    'database_unavailable',
  ];
  expect(levels.map((code) => levelOf({ code }))).toEqual(['info', 'info', 'info', 'warn', 'error', 'error']);
});
