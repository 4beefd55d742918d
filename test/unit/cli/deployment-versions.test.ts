import { expect, test } from 'vitest';
import { configChanges } from '../../../cli/commands/deployment-diff.ts';
import type { DeploymentFacts } from '../../../cli/commands/deployment-reference.ts';
import { comparedVersions, rollbackTarget, versionNamed } from '../../../cli/commands/deployment-versions.ts';
import type { Versions } from '../../../cli/commands/deployment-versions.ts';
import { endSentences, rolloutIn } from '../../../cli/deploy/rollout.ts';
import { filesChanged, zipListing } from '../../../cli/deploy/zip-listing.ts';
import { zipOf } from '../../helpers/platform.ts';

/** Versions of a name, the highest first; the one with `serving` is reached. */
const some = (...given: readonly Partial<DeploymentFacts>[]): Versions => {
  const all = given.map((one, index) => ({
    id: `d-${given.length - index}`,
    name: 'hello',
    kind: 'endpoint',
    version: given.length - index,
    active: true,
    stubId: 's',
    serving: false,
    rollout: '',
    ...one,
  }));
  const serving = all.find((one) => one.serving);
  if (serving === undefined) throw new Error('none serves');
  return { all, serving };
};

test('a roll back leads to the version that served before', () => {
  const failedBetween = some({ serving: true, rollout: 'done' }, { rollout: 'failed' }, { rollout: 'done' }, {});
  expect(rollbackTarget(failedBetween).version).toBe(2);
  const withdrawn = some({ serving: true }, { rollout: 'withdrawn' }, { rollout: 'done' });
  expect(rollbackTarget(withdrawn).version).toBe(1);
  const stopped = some({ serving: true }, { active: false }, {});
  expect(rollbackTarget(stopped).version).toBe(1);
  expect(() => rollbackTarget(some({ serving: true }))).toThrow('hello v1 has no active version before it');
  expect(() => rollbackTarget(some({ rollout: 'done' }, { serving: true }))).toThrow(
    'shows all; `longshore deployment rollback hello v2` goes forward',
  );
});

test('a roll back in the middle of a rollout ends it', () => {
  expect(rollbackTarget(some({ rollout: 'waiting' }, { serving: true }, {})).version).toBe(2);
});

test('a comparison is of what serves and what would, or what did', () => {
  const compared = (versions: Versions, from?: string, to?: string) =>
    comparedVersions(versions, { from, to }).map(({ version }) => version);
  expect(compared(some({ serving: true }, { rollout: 'failed' }, {}))).toEqual([1, 3]);
  expect(compared(some({ rollout: 'failed' }, { serving: true }, {}))).toEqual([2, 3]);
  expect(compared(some({ serving: true }, { rollout: 'failed' }))).toEqual([1, 2]);
  expect(compared(some({ serving: true }, {}, {}), 'v1')).toEqual([1, 3]);
  expect(compared(some({ serving: true }, {}, {}), '2', 'v1')).toEqual([2, 1]);
  expect(() => compared(some({ serving: true }))).toThrow('hello v1 is the only version of its name');
  expect(() => versionNamed(some({ serving: true }, {}), 'v7')).toThrow('there is no hello v7: there is v2, v1');
  expect(() => versionNamed(some({ serving: true }), 'latest')).toThrow('"latest" is not a version: say v3');
});

test('values that differ are named by their place, and those of the environment are not shown', () => {
  const before = { handler: 'app:f', autoscaler: { max: 1, min: 0 }, gpus: ['T4'], env: ['A=1', 'B=secret', 'C=3'] };
  const after = {
    handler: 'app:f',
    autoscaler: { max: 3, min: 0 },
    gpus: [],
    extra: 'x',
    env: ['A=1', 'B=other', 'D=4'],
  };
  const changes = (from: object, to: object) => configChanges(JSON.stringify(from), JSON.stringify(to));
  expect(changes(before, after)).toEqual([
    { field: 'autoscaler.max', from: '1', to: '3' },
    { field: 'env B', from: '(set)', to: '(set)' },
    { field: 'env C', from: '(set)', to: null },
    { field: 'env D', from: null, to: '(set)' },
    { field: 'extra', from: null, to: '"x"' },
    { field: 'gpus', from: '["T4"]', to: '[]' },
  ]);
  expect(changes(before, before)).toEqual([]);
  // The digest of all parameters says nothing that they do not say.
  expect(changes({ extra: { recipe: 'a' } }, { extra: { recipe: 'b' } })).toEqual([]);
});

test('values that JavaScript takes for equal differ where their text does', () => {
  expect(configChanges('{"extra":{"n":9007199254740993,"f":1}}', '{"extra":{"n":9007199254740992,"f":1.0}}')).toEqual([
    { field: 'extra.f', from: '1', to: '1.0' },
    { field: 'extra.n', from: '9007199254740993', to: '9007199254740992' },
  ]);
});

test('files are compared by their checksums', async () => {
  const before = zipListing(
    await zipOf({ 'app.py': Buffer.from('1'), 'gone.py': Buffer.from('2'), 'same.py': Buffer.from('3') }),
  );
  const after = zipListing(
    await zipOf({ 'app.py': Buffer.from('x'), 'new/é.py': Buffer.from('2'), 'same.py': Buffer.from('3') }),
  );
  expect(filesChanged(before, after)).toEqual({ added: ['new/é.py'], removed: ['gone.py'], changed: ['app.py'] });
  expect(() => zipListing(Buffer.from('no zip at all, but long enough'))).toThrow('is no zip');
  expect(() => zipListing(Buffer.alloc(0))).toThrow('is no zip');
});

test('an end is told with what to do about it; without the field, calls have moved', () => {
  const of = { name: 'hello', version: 2, program: 'longshore' };
  expect(rolloutIn({})).toEqual({ state: 'done', why: '' });
  expect(endSentences({ state: 'done', why: 'a container of it is ready' }, of)).toEqual([
    'calls of hello reach v2 now: a container of it is ready',
  ]);
  expect(endSentences({ state: 'superseded', why: 'v3 was deployed' }, of)).toEqual([
    'calls of hello do not reach v2: v3 was deployed',
  ]);
  expect(endSentences({ state: 'failed', why: 'x' }, of)[1]).toContain('`longshore logs hello/v2`');
});
