import { expect, test } from 'vitest';
import { filePathProblem } from '#shared/domain/volume-file-paths.ts';

test.for(['a', 'a/b.bin', 'a b/ü 漢字', '-rf', '...', '.hidden', 'a%2Fb', 'x'.repeat(255), 'a\\b', 'line\nbreak'])(
  '%j names a file',
  (path) => expect(filePathProblem(path)).toBeUndefined(),
);

test.for([
  '',
  '/a',
  'a/',
  'a//b',
  '.',
  '..',
  'a/./b',
  'a/../b',
  'a/..',
  'a\0b',
  'x'.repeat(256),
  'ü'.repeat(128),
  `${'a/'.repeat(2048)}a`,
  '\ud800',
  '.longshore-upload-0',
  'a/.longshore-upload-0/1-2',
])('%j names none', (path) => expect(filePathProblem(path)).toMatch(/^must /));
