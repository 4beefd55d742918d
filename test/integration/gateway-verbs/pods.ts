/** Calls of pods and sandboxes that published clients make, and the fields that they read. */
import type { Json } from '../verbs-fixture.ts';

export const POD_ROUTES: readonly (readonly [route: string, fields: string, body: Json])[] = [
  ['POST /pods/{id}/connect', 'stubId', {}],
  ['POST /pods/{id}/exec', 'pid done exitCode stdout stderr', { command: 'true' }],
  ['GET /pods/{id}/status?pid=1', 'exitCode status', {}],
  ['GET /pods/{id}/stdout?pid=1', 'stdout', {}],
  ['GET /pods/{id}/stderr?pid=1', 'stderr', {}],
  ['POST /pods/{id}/kill', '', { pid: 1 }],
  ['GET /pods/{id}/processes', 'processes', {}],
  ['POST /pods/{id}/files/upload', '', { containerPath: '/a', data: '' }],
  ['GET /pods/{id}/files/download/{path}', 'data', {}],
  ['GET /pods/{id}/files/stat?containerPath=/a+b', 'fileInfo', {}],
  ['GET /pods/{id}/files?containerPath=/', 'files', {}],
  ['POST /pods/{id}/files/find', 'results', { containerPath: '/', pattern: 'a' }],
  ['POST /pods/{id}/files/replace', 'results', { containerPath: '/', pattern: 'a' }],
  ['DELETE /pods/{id}/files/{path}', '', {}],
  ['POST /pods/{id}/directories', '', { containerPath: '/a' }],
  ['DELETE /pods/{id}/directories/{path}', '', {}],
  ['POST /pods/{id}/ports/expose', 'url', { port: 80 }],
  ['GET /pods/{id}/urls', 'urls', {}],
  ['POST /pods/{id}/ttl', '', { ttl: 60 }],
  ['PATCH /pods/{id}/ttl', '', { ttl: 60 }],
  ['POST /pods/{id}/network/update', '', {}],
  ['POST /pods/{id}/snapshot-memory', 'checkpointId', {}],
  ['POST /pods/{id}/create-image-from-filesystem', 'imageId', {}],
];
