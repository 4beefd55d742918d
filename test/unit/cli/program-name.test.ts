// The name of the program in advice: as the person can type it.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { programName } from '#cli/program-name.ts';
import { tempDirectory } from '../../helpers/programs.ts';

test('the npm package that npx runs is called longshore, not by a path that is not there', () => {
  const directory = tempDirectory('program-name');
  try {
    expect(programName({ PATH: '' }, directory.path)).toBe('longshore');
  } finally {
    directory.remove();
  }
});

test('a checkout is called by its path, or by its name where that is on the PATH', () => {
  const directory = tempDirectory('program-name');
  try {
    const bin = join(directory.path, 'bin');
    mkdirSync(bin);
    writeFileSync(join(bin, 'longshore.mjs'), '');
    expect(programName({ PATH: '' }, directory.path)).toBe(join(bin, 'longshore.mjs'));
    writeFileSync(join(bin, 'longshore'), '');
    expect(programName({ PATH: bin }, directory.path)).toBe('longshore');
  } finally {
    directory.remove();
  }
});
