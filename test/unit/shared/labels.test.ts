import { describe, expect, test } from 'vitest';
import {
  LABELS_PATTERN,
  labelOf,
  labelProblem,
  labelsFit,
  labelsPreferred,
  labelsText,
  labelTexts,
  mergedLabels,
  readLabels,
  readRules,
} from '#shared/domain/labels.ts';

const NONE = { require: {}, forbid: {}, prefer: {}, spread: '' };

describe('labels', () => {
  test.each([
    ['zone=a', true],
    ['zone=a,disk=nvme', true],
    ['topology.example.org/zone=a-1', true],
    ['', true],
    ['zone', false],
    ['zone=', false],
    ['zone=a,', false],
    ['-zone=a', false],
    ['zone=a b', false],
    ['__proto__=a', false],
    [`${'k'.repeat(63)}=${'v'.repeat(63)}`, true],
    [`${'k'.repeat(64)}=v`, false],
    [Array.from({ length: 32 }, (_none, at) => `k${at}=v`).join(), true],
    [Array.from({ length: 33 }, (_none, at) => `k${at}=v`).join(), false],
  ])('%s in one text', (text, isRight) => {
    expect(new RegExp(LABELS_PATTERN).test(text)).toBe(isRight);
    if (isRight) expect(labelsText(readLabels(text))).toBe(text.split(',').toSorted().join());
  });

  test('of later sources win, and a machine has at most 32', () => {
    expect(mergedLabels({ zone: 'pool', disk: 'ssd' }, { zone: 'agent' }, { zone: 'operator' })).toEqual({
      zone: 'operator',
      disk: 'ssd',
    });
    const many = Object.fromEntries(Array.from({ length: 32 }, (_none, at) => [`k${at}`, 'v']));
    expect(Object.keys(mergedLabels({ other: 'x' }, many))).toHaveLength(32);
    expect(labelOf(mergedLabels({ other: 'x' }, many), 'other')).toBeUndefined();
  });

  test('that are no own fields are none', () => {
    expect(labelOf({}, 'constructor')).toBeUndefined();
    expect(labelProblem('constructor', 'x')).toBeUndefined();
    expect(labelProblem('zone', 7)).toMatch(/^zone=7 is no label: its value must be/);
  });
});

describe('rules', () => {
  test('are read in one form, and none of them is none', () => {
    expect(readRules({ require: { zone: ['b', 'a', 'b'], arch: 'x' }, spread: 'rack' }, 'extra.placement')).toEqual({
      ...NONE,
      require: { arch: ['x'], zone: ['a', 'b'] },
      spread: 'rack',
    });
    for (const none of [undefined, null, {}, { require: {} }, { spread: '' }])
      expect(readRules(none, 'p')).toBeUndefined();
  });

  test.each([
    [7, /^p must be an object$/],
    [{ requires: {} }, /^p\.requires is not known; there are require, forbid, prefer, spread$/],
    [{ require: ['zone'] }, /^p\.require must be an object of values/],
    [{ require: { zone: [] } }, /^p\.require\.zone must have 1 to 16 values$/],
    [{ forbid: { zone: 7 } }, /^p\.forbid: zone=7 is no label/],
    [{ forbid: { 'z ne': 'a' } }, /^p\.forbid: "z ne" is no key of a label/],
    [{ prefer: { a: 'x', b: 'x', c: 'x', d: 'x', e: 'x' } }, /^p\.prefer may name 4 labels, not 5$/],
    [{ spread: ['zone'] }, /^p\.spread must be the key of a label$/],
    [{ spread: '-' }, /^p\.spread: "-" is no key/],
  ])('%j are refused', (rules, says) => {
    expect(readRules(rules, 'p')).toMatch(says);
  });

  test.each([
    [{ require: { zone: ['a', 'b'] } }, { zone: 'b' }, true],
    [{ require: { zone: ['a'] } }, { zone: 'b' }, false],
    [{ require: { zone: ['a'] } }, {}, false],
    [{ require: { zone: ['a'], disk: ['nvme'] } }, { zone: 'a' }, false],
    [{ forbid: { zone: ['a'] } }, {}, true],
    [{ forbid: { zone: ['a'], disk: ['hdd'] } }, { zone: 'b', disk: 'hdd' }, false],
    [{ prefer: { zone: ['a'] } }, {}, true],
  ])('%j fit %j: %s', (rules, labels, fits) => {
    expect(labelsFit(labels, { ...NONE, ...rules })).toBe(fits);
  });

  test('count what is preferred', () => {
    const rules = { ...NONE, prefer: { zone: ['a'], disk: ['nvme', 'ssd'] } };
    expect(labelsPreferred({ zone: 'a', disk: 'ssd' }, rules)).toBe(2);
    expect(labelsPreferred({ zone: 'b', disk: 'ssd' }, rules)).toBe(1);
    expect(labelsPreferred({}, undefined)).toBe(0);
  });

  test.each([
    [{ require: { zone: ['a', 'b'] } }, [{}], ['no machine has the label zone=a or zone=b']],
    [
      { require: { zone: ['a'] } },
      [{ zone: 'c' }, { zone: 'b' }],
      ['no machine has the label zone=a: there are zone=b, zone=c'],
    ],
    [
      { require: { zone: ['a'], disk: ['nvme'] } },
      [{ zone: 'a' }, { disk: 'nvme' }],
      ['no machine has all labels that it requires and none that it forbids'],
    ],
    [{ require: { zone: ['a'] } }, [{ zone: 'a' }], []],
  ])('that no machine meets: %j', (rules, machines, texts) => {
    expect(labelTexts({ ...NONE, ...rules }, machines)).toEqual(texts);
  });
});
