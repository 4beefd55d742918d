import { expect, test } from 'vitest';
import type { GetOrCreateStubRequest } from '#shared/api/stubs.ts';
import { mayTakeCodeOf, withinOwnStub } from '#scheduler/workspaces/deployments/container-stubs.ts';
import type { StubConfig } from '#scheduler/domain/stub-config.ts';
import { jsonText } from '../../helpers/exact-json.ts';

const asked = (said: Partial<GetOrCreateStubRequest> = {}): GetOrCreateStubRequest =>
  ({
    appName: '',
    secrets: [],
    volumes: [],
    pool: null,
    blockNetwork: false,
    allowList: [],
    callbackUrl: '',
    imageId: '',
    ...said,
  }) as unknown as GetOrCreateStubRequest;
const own = (said: Partial<StubConfig> = {}) => ({
  appName: 'mine',
  config: {
    secrets: ['A'],
    volumes: [{ volumeId: 'v-1', mountPath: 'data' }],
    extra: {},
    authorized: true,
    blockNetwork: false,
    allowList: [],
    callbackUrl: '',
    imageId: '',
    ...said,
  } as unknown as StubConfig,
});
const LIMITED: readonly Partial<StubConfig>[] = [{ blockNetwork: true }, { allowList: ['10.0.0.0/8'] }];
const network = (limited: ReturnType<typeof withinOwnStub>): unknown =>
  limited.kind === 'request' ? [limited.request.blockNetwork, limited.request.allowList] : limited;

test('a stub is of the container’s app, in its pool, whether that is said or not', () => {
  const pool = jsonText({ name: 'p' });
  const made = withinOwnStub(
    own({ extra: { pool } }),
    asked({ secrets: [{ name: 'A' }], volumes: [{ id: 'V-1', mountPath: 'd', config: null }] }),
  );
  expect(made).toMatchObject({ kind: 'request', request: { appName: 'mine', pool } });
  expect(
    withinOwnStub(own({ extra: { pool } }), asked({ pool: jsonText({ name: 'p', priority: 1.5 }) })),
  ).toMatchObject({
    request: { pool: jsonText({ name: 'p', priority: 1.5 }) },
  });
  expect(withinOwnStub(own(), asked({ appName: 'mine' }))).toMatchObject({ request: { appName: 'mine', pool: null } });
});

test.each([
  ['appName', asked({ appName: 'other' })],
  ['secrets', asked({ secrets: [{ name: 'A' }, { name: 'B' }] })],
  ['volumes', asked({ volumes: [{ id: 'v-2', mountPath: 'd', config: null }] })],
  ['pool', asked({ pool: jsonText({ name: 'q' }) })],
  ['authorized', asked({ authorized: false })],
])('what its own stub has not is refused by name: %s', (field, request) => {
  expect(withinOwnStub(own(), request)).toEqual({
    kind: 'refused',
    why: expect.stringMatching(new RegExp(`^${field}\\b`)),
  });
});

test('a way out that its own stub has not is not opened', () => {
  const blocked = own({ blockNetwork: true });
  for (const said of [{}, { allowList: ['10.0.0.0/8'] }])
    expect(network(withinOwnStub(blocked, asked(said)))).toEqual([true, []]);
  const listed = own({ allowList: ['10.0.0.0/8', '192.0.2.0/24'] });
  expect(network(withinOwnStub(listed, asked()))).toEqual([false, ['10.0.0.0/8', '192.0.2.0/24']]);
  expect(network(withinOwnStub(listed, asked({ allowList: ['192.0.2.0/24'] })))).toEqual([false, ['192.0.2.0/24']]);
  expect(network(withinOwnStub(listed, asked({ allowList: ['0.0.0.0/0'] })))).toEqual([
    false,
    ['10.0.0.0/8', '192.0.2.0/24'],
  ]);
  expect(network(withinOwnStub(listed, asked({ blockNetwork: true })))).toEqual([true, []]);
  expect(network(withinOwnStub(own(), asked()))).toEqual([false, []]);
});

test.each(LIMITED)('with a network of %o nobody else sends there, or pulls from there, in its stead', (limits) => {
  const [callbackUrl, imageId] = ['https://example.com/own', 'registry.example.com/own:1'];
  const mine = own({ ...limits, callbackUrl, imageId });
  for (const [field, said] of [
    ['callbackUrl', { callbackUrl: 'https://example.com/other' }],
    ['imageId', { imageId: 'registry.example.com/other:1' }],
  ] as const) {
    expect(withinOwnStub(mine, asked(said))).toEqual({
      kind: 'refused',
      why: expect.stringMatching(new RegExp(`^${field}\\b`)),
    });
    expect(withinOwnStub(own(limits), asked(said))).toMatchObject({ kind: 'refused' });
    // A container with such a network of its own could do the same itself.
    expect(withinOwnStub(own({ callbackUrl, imageId }), asked(said))).toMatchObject({ kind: 'request', request: said });
  }
  expect(withinOwnStub(mine, asked({ callbackUrl, imageId }))).toMatchObject({ kind: 'request' });
  expect(withinOwnStub(mine, asked())).toMatchObject({ kind: 'request' });
});

test.each<readonly [string, Partial<StubConfig>, Partial<StubConfig>, boolean]>([
  ['equal rights', {}, {}, true],
  ['a reader with fewer secrets', { secrets: [] }, {}, true],
  ['a reader with another secret', { secrets: ['A', 'B'] }, {}, false],
  ['a reader with fewer volumes', { volumes: [] }, {}, true],
  ['a reader with another volume', { volumes: [{ volumeId: 'v-2', mountPath: 'data' }] as never }, {}, false],
  ['a reader in another pool', { extra: { pool: jsonText({ name: 'p' }) } }, {}, false],
  ['a writer with a closed network', {}, { blockNetwork: true }, false],
  ['both with a closed network', { blockNetwork: true }, { blockNetwork: true }, true],
  ['a reader with a closed network', { blockNetwork: true }, {}, true],
  [
    'a reader that reaches more ranges',
    { allowList: ['10.0.0.0/8', '11.0.0.0/8'] },
    { allowList: ['10.0.0.0/8'] },
    false,
  ],
  ['a reader that reaches anything', {}, { allowList: ['10.0.0.0/8'] }, false],
  [
    'a reader that reaches one of the ranges',
    { allowList: ['10.0.0.0/8'] },
    { allowList: ['10.0.0.0/8', '11.0.0.0/8'] },
    true,
  ],
])('code of another stub’s container: %s', (_name, reader, writer, expected) => {
  const rights = (said: Partial<StubConfig>, appId: string | null) => ({ appId, config: own(said).config });
  expect(mayTakeCodeOf(rights(reader, 'a'), rights(writer, 'a'))).toBe(expected);
  expect(mayTakeCodeOf(rights(reader, 'a'), rights(writer, 'b'))).toBe(false);
  expect(mayTakeCodeOf(rights(reader, null), rights(writer, null))).toBe(false);
});

test('a bucket is its own only with the same keys and rights', () => {
  const config = {
    bucketName: 'weights',
    endpointUrl: '',
    region: '',
    accessKey: 'KEY',
    secretKey: 'HIDDEN',
    readOnly: true,
    forcePathStyle: false,
  };
  const bucket = {
    bucket: 'weights',
    endpoint: '',
    region: '',
    accessKey: 'KEY',
    secretKey: 'HIDDEN',
    readOnly: true,
    pathStyle: false,
  };
  const holder = own({ volumes: [{ volumeId: '', mountPath: 'w', driver: 'bucket', bucket }] });
  const request = (more: object) => asked({ volumes: [{ id: '', mountPath: 'w', config: { ...config, ...more } }] });
  expect(withinOwnStub(holder, request({})).kind).toBe('request');
  for (const more of [
    { readOnly: false },
    { bucketName: 'other' },
    { secretKey: 'OTHER' },
    { endpointUrl: 'https://x' },
  ])
    expect(withinOwnStub(holder, request(more))).toMatchObject({
      kind: 'refused',
      why: expect.stringContaining('volumes'),
    });
  expect(withinOwnStub(own(), request({})).kind).toBe('refused');
  const rights = (said: Partial<StubConfig>) => ({ appId: 'a', config: own(said).config });
  const mounted = (more: object = {}) =>
    rights({ volumes: [{ volumeId: '', mountPath: 'w', driver: 'bucket', bucket: { ...bucket, ...more } }] });
  expect(mayTakeCodeOf(mounted(), mounted())).toBe(true);
  expect(mayTakeCodeOf(mounted({ bucket: 'other' }), mounted())).toBe(false);
  expect(mayTakeCodeOf(mounted(), rights({ volumes: [] }))).toBe(false);
});
