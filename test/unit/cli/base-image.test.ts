import { describe, expect, test } from 'vitest';
import { imageOf, loadAgentConfig } from '#agent/config.ts';
import { baseImageOf } from '#cli/up/base-image.ts';

// Set-up is plain JavaScript, so that its types are said here.
const { baseImageTemplate, DEFAULT_PYTHON } = (await import(`../../../scripts/setup/${'base-image'}.mjs`)) as {
  baseImageTemplate: (reference: string) => string;
  DEFAULT_PYTHON: string;
};

describe('the image of apps that name none, under up', () => {
  test.for([
    ['the official one, when it is there', ['python:3.11-slim', 'longshore-python:3.11'], {}, 'python:3.11-slim'],
    ['the official one, when nothing is: it is pulled', ['python:3.12-slim', 'other:1'], {}, 'python:3.11-slim'],
    ['the one that set-up built, when that alone is', ['longshore-python:3.11'], {}, 'longshore-python:3.11'],
    [
      'that of the default, beside others',
      ['longshore-python:3.13', 'longshore-python:3.11'],
      {},
      'longshore-python:3.11',
    ],
    [
      'the newest, when there is none of the default',
      ['longshore-python:3.9', 'longshore-python:3.13'],
      {},
      'longshore-python:3.13',
    ],
    [
      'the one that is asked for by version',
      ['python:3.11-slim', 'longshore-python:3.12'],
      { LONGSHORE_DEFAULT_PYTHON: '3.12' },
      'longshore-python:3.12',
    ],
    [
      'the official one of a version that was not built',
      ['longshore-python:3.11'],
      { LONGSHORE_DEFAULT_PYTHON: '3.12' },
      'python:3.12-slim',
    ],
    ['what the person says', ['longshore-python:3.11'], { LONGSHORE_BASE_IMAGE: 'mine:{version}' }, 'mine:3.11'],
  ] as const)('is %s', ([, held, env, image]) => {
    const found = baseImageOf(held, env);
    expect(imageOf(loadAgentConfig({ ...env, ...found?.env }), '', '')).toBe(image);
    expect(found?.why ?? image).toContain(image);
  });

  test('is chosen as set-up chooses, and by the default version of both', () => {
    expect(baseImageTemplate('longshore-python:3.11')).toBe(
      baseImageOf(['longshore-python:3.11'], {})?.env['LONGSHORE_BASE_IMAGE'],
    );
    expect(loadAgentConfig({}).LONGSHORE_DEFAULT_PYTHON).toBe(DEFAULT_PYTHON);
  });
});
