import { describe, expect, test } from 'vitest';
import type { Instance } from '#scheduler/domain/provisioning.ts';
import { createdOf, listedOf } from '#scheduler/fleet/provisioning/provider-answers.ts';
import { providersIn } from '#scheduler/fleet/provisioning/providers-file.ts';
import { UNWANTED, isDue, sightingOf, unwantedAfter } from '#scheduler/fleet/provisioning/sightings.ts';
import type { ProvisionedRow } from '#scheduler/fleet/provisioning/states.ts';

describe('the answer of a program', () => {
  test('to create needs the id alone', () => {
    expect(createdOf('{"instanceId": "i-1"}', 'r1')).toEqual({
      instanceId: 'i-1',
      requestId: 'r1',
      state: 'pending',
      address: null,
      hourlyCost: null,
      endsAtMs: null,
    });
  });
  test.for([
    ['', /standard output is empty/],
    ['Created server 1', /no JSON; it begins with "Created server 1"/],
    ['[]', /the answer: must be an object/],
    ['{"instanceId": 7, "state": "up", "hourlyCost": "1"}', /instanceId: .*; state: .*; hourlyCost: /],
    ['{"instanceId": "i", "requestId": "r2"}', /requestId: must be r1/],
    ['{"instanceId": "i", "endsAt": "tomorrow"}', /endsAt: must be a time/],
  ] as const)('to create as %j is refused', ([text, why]) => {
    expect(() => createdOf(text, 'r1')).toThrow(why);
  });
  test('to list leaves out instances of other installations', () => {
    const instances = [
      { instanceId: 'a', requestId: 'r1', installationId: 'ours', state: 'running', endsAt: '2027-01-01T00:00:00Z' },
      { instanceId: 'b', requestId: 'r9', installationId: 'theirs', state: 'running' },
    ];
    const listed = listedOf(JSON.stringify({ instances }), 'ours');
    expect(listed.map((one) => [one.instanceId, one.endsAtMs])).toEqual([['a', Date.parse('2027-01-01T00:00:00Z')]]);
  });
  test.for([
    ['{}', /must be \{"instances"/],
    [
      '{"instances": [{"instanceId": "a", "requestId": "r"}]}',
      /instances\[0\]\.installationId: must be the text of its tag/,
    ],
    ['{"instances": [{"instanceId": "a", "installationId": "ours", "state": "running"}]}', /instances\[0\]\.requestId/],
  ] as const)('to list as %j counts for nothing', ([text, why]) => {
    expect(() => listedOf(text, 'ours')).toThrow(why);
  });
});

describe('the providers file', () => {
  test('names programs', () => {
    const said = { providers: { hetzner: { command: ['/etc/longshore/hetzner', '--eu'], env: { A: 'b' } } } };
    expect(providersIn('/p', JSON.stringify(said)).get('hetzner')).toEqual({
      command: ['/etc/longshore/hetzner', '--eu'],
      timeoutSeconds: 120,
      env: { A: 'b' },
    });
  });
  test('with mistakes is refused with all of them', () => {
    const said = {
      providers: { 'a b': { command: ['x'], timeoutSeconds: 0, env: { '1': 2 }, shell: true }, c: 3 },
      x: 1,
    };
    const refused = (): unknown => providersIn('/p', JSON.stringify(said));
    for (const part of [
      /x is nothing/,
      /provider a b: the name/,
      /shell is no setting/,
      /absolute path/,
      /timeoutSeconds must/,
      /env must/,
      /provider c: must be an object/,
    ])
      expect(refused).toThrow(part);
  });
});

describe('a listing', () => {
  const aRow = (requestId: string, instanceId: string | null, state = 'joined') =>
    ({ requestId, instanceId, state }) as unknown as ProvisionedRow;
  const one = (instanceId: string, requestId: string, state: Instance['state'] = 'running'): Instance => ({
    instanceId,
    requestId,
    state,
    address: null,
    hourlyCost: null,
    endsAtMs: null,
  });
  test('shows the row of each instance, by its id before its tag', () => {
    const { ofRow, extra, orphans } = sightingOf(
      [one('i1', 'wrong'), one('i2', 'r2')],
      [aRow('r1', 'i1'), aRow('r2', null)],
      [],
    );
    expect([...ofRow].map(([requestId, { instanceId }]) => [requestId, instanceId])).toEqual([
      ['r1', 'i1'],
      ['r2', 'i2'],
    ]);
    expect([extra, orphans]).toEqual([[], []]);
  });
  test('shows the second instance of a request as one too many', () => {
    const { ofRow, extra } = sightingOf([one('i1', 'r1'), one('i2', 'r1')], [aRow('r1', 'i2')], []);
    expect(ofRow.get('r1')?.instanceId).toBe('i2');
    expect(extra.map(({ instanceId }) => instanceId)).toEqual(['i1']);
  });
  test('shows instances without a live row, and not those that end', () => {
    const listed = [one('i1', 'r1'), one('i2', 'r9'), one('i3', 'r9', 'stopping'), one('i4', 'r9', 'gone')];
    expect(sightingOf(listed, [aRow('r1', 'i1', 'gone')], []).orphans.map(({ instanceId }) => instanceId)).toEqual([
      'i1',
      'i2',
    ]);
  });
  test('spares the instances of another provider, by their tags', () => {
    const listed = [one('i1', 'r1'), one('i2', 'r2'), one('i3', 'r3')];
    const { ofRow, orphans } = sightingOf(listed, [], [aRow('r1', null, 'creating'), aRow('r2', 'i2', 'gone')]);
    expect([ofRow.size, orphans.map(({ instanceId }) => instanceId)]).toEqual([0, ['i2', 'i3']]);
  });
  test('has an unwanted instance terminated after two sightings and a minute', () => {
    const first = unwantedAfter(new Map(), [one('i1', 'r1')], 0);
    const second = unwantedAfter(first, [one('i1', 'r1')], UNWANTED.graceMs);
    expect([...first.values()].map((each) => isDue(each, UNWANTED.graceMs))).toEqual([false]);
    expect([...second.values()].map((each) => isDue(each, UNWANTED.graceMs))).toEqual([true]);
    expect(unwantedAfter(second, [], UNWANTED.graceMs).size).toBe(0);
  });
});
