/** Operations of images. */
import { expect } from 'vitest';
import { done, refusedWith } from '../verbs-kit.ts';
import type { GatewayVerb } from './row.ts';

const image = { pythonVersion: 'python3.11', existingImageUri: 'registry.example/app:1', ignorePython: true };

export const IMAGE_VERBS: readonly GatewayVerb[] = [
  {
    name: 'VerifyImageBuild',
    ours: true,
    line: () => 'POST /images/verify-build',
    body: () => ({ ...image, pythonPackages: [], commands: [], forceRebuild: false }),
    fields: 'ok errMsg imageId valid exists steps',
    ok: { ...done, imageId: 'registry.example/app:1', valid: true, exists: true },
    malformed: { body: '{"commands": "make"}' },
    failures: {
      'with packages': {
        body: () => ({ ...image, python_packages: ['numpy'] }),
        answer: { ...done, exists: false, imageId: expect.stringMatching(/^longshore\.internal\/[0-9a-f]{32}$/) },
      },
      'with secrets': {
        body: () => ({ ...image, commands: ['x'], secrets: ['TOKEN'] }),
        answer: { ...refusedWith(expect.stringMatching(/^secrets: a build gets none/)), imageId: '' },
      },
      'by the id of an image that is not there': {
        body: () => ({ image_id: 'longshore.internal/0123', commands: ['x'] }),
        answer: refusedWith(expect.stringMatching(/is not an image of this workspace$/)),
      },
      'by its id': { body: () => ({ image_id: 'mine:1', commands: ['x'] }), answer: { ...done, imageId: 'mine:1' } },
    },
  },
  {
    name: 'BuildImage',
    restricted: { result: expect.objectContaining({ success: false, imageId: '' }) },
    container: { result: expect.objectContaining({ success: false, imageId: '' }) },
    ours: true,
    line: () => 'POST /images/build',
    body: () => image,
    fields: 'result',
    records: { result: 'imageId msg done success pythonVersion warning' },
    ok: { result: { imageId: 'registry.example/app:1', done: true, success: true, pythonVersion: 'python3.11' } },
    malformed: { body: '{"env_vars": 1}' },
    failures: {
      'with commands': {
        body: () => ({ ...image, commands: ['apt-get install x'] }),
        answer: { result: { done: true, success: false, msg: expect.stringMatching(/can build images now/) } },
      },
    },
  },
];
