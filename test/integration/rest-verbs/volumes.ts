/** Verbs of volumes and of their files. */
import type { Json } from '../verbs-fixture.ts';
import type { Verb } from '../verbs-kit.ts';
import { READS_NOTHING } from './parts.ts';
import type { RestParts } from './parts.ts';

export function volumeVerbs(parts: RestParts): readonly Verb[] {
  const { platform, rest, ownId, unique } = parts;
  const aVolume = async (driver = 'local'): Promise<string> => {
    const name = unique('volume');
    await platform().gateway('POST /volumes', { name, driver });
    return name;
  };
  const volumeNames = async (): Promise<readonly unknown[]> => {
    const { json } = await platform().call(rest('GET /api/v1/volume/{ws}?limit=1000'));
    return (json['data'] as Json[]).map((row) => row['name']);
  };
  return [
    {
      name: 'GET /volume/{ws}',
      line: (id) => `GET /volume/${id}`,
      make: ownId,
      ok: { status: 200 },
      unknown: { status: 401 },
      malformed: { line: 'GET /volume/{ws}?cursor=%21' },
    },
    {
      name: 'POST /volume/{ws}',
      line: () => 'POST /volume/{ws}',
      body: (id) => ({ name: id }),
      make: async () => unique('made'),
      ok: { status: 201 },
      foreign: { status: 401 },
      malformed: { body: '{"name": ".."}', answer: { status: 422 } },
      done: async (id) => (await volumeNames()).includes(id),
    },
    {
      name: 'GET /volume/{ws}/{volumeName}',
      line: (id) => `GET /volume/{ws}/${id}`,
      make: aVolume,
      ok: { driver: 'local', machine_id: '', deployments: [], containers: 0 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'DELETE /volume/{ws}/{volumeName}',
      line: (id) => `DELETE /volume/{ws}/${id}`,
      make: aVolume,
      ok: { removed: 0, complete: true },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async (id) => !(await volumeNames()).includes(id),
    },
    {
      name: 'GET /volume/{ws}/{volumeName}/files',
      line: (id) => `GET /volume/{ws}/${id}/files?recursive=true`,
      make: aVolume,
      ok: { kind: 'folder', data: [], next: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: 'GET /volume/{ws}/v/files?path=a/../b' },
    },
    {
      // No machine has files here.
      name: 'DELETE /volume/{ws}/{volumeName}/files',
      line: (id) => `DELETE /volume/{ws}/${id}/files?path=a`,
      make: aVolume,
      ok: { status: 404 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: 'DELETE /volume/{ws}/v/files' },
    },
    {
      name: 'POST /volume/{ws}/{volumeName}/files/move',
      line: (id) => `POST /volume/{ws}/${id}/files/move`,
      body: () => ({ from: 'a', to: 'b' }),
      make: aVolume,
      ok: { status: 404 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { body: '{"from": "a", "to": 5}', answer: { status: 422 } },
    },
    {
      name: 'GET /volume/{ws}/{volumeName}/size',
      line: (id) => `GET /volume/{ws}/${id}/size`,
      make: aVolume,
      ok: { bytes: 0, files: 0, next: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: 'GET /volume/{ws}/v/size?path=/a' },
    },
    {
      name: 'GET /volume/{ws}/{volumeName}/upload',
      line: (id) => `GET /volume/{ws}/${id}/upload?path=a&size=1&key=0123456789abcdef`,
      make: aVolume,
      ok: { received: 0 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: 'GET /volume/{ws}/v/upload?size=x' },
    },
    {
      name: 'GET /volume/{ws}/{volumeName}/pack-url',
      line: (id) => `GET /volume/{ws}/${id}/pack-url?method=PUT`,
      make: () => aVolume('shared'),
      ok: { status: 200 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: 'GET /volume/{ws}/v/pack-url?method=GET' },
    },
    {
      name: 'GET /volume/{ws}/{volumeName}/file-url',
      line: (id) => `GET /volume/{ws}/${id}/file-url?path=a`,
      make: () => aVolume('shared'),
      ok: { status: 200 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: 'GET /volume/{ws}/files/file-url?path=..' },
    },
    ...['upload', 'download'].map((way): Verb => ({
      name: `GET /volume/{ws}/generate-${way}-url/{volumeName}/{path}`,
      line: (id) => `GET /volume/{ws}/generate-${way}-url/${id}/a%2Fb.bin`,
      make: () => aVolume('shared'),
      ok: { status: 200 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: `GET /volume/{ws}/generate-${way}-url/v/a%2F..%2Fb` },
    })),
  ];
}
