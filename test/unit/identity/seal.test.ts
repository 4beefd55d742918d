import { expect, test } from 'vitest';
import { createSealer } from '../../../scheduler/workspaces/secrets/seal.ts';

const key = (fill: number): Uint8Array => new Uint8Array(32).fill(fill);

test('what is sealed opens again, and two seals of one value differ', () => {
  const sealer = createSealer(key(1));
  const first = sealer.seal(Buffer.from('value'), 'a');
  expect(Buffer.from(sealer.open(first, 'a')).toString()).toBe('value');
  expect(Buffer.from(sealer.seal(Buffer.from('value'), 'a'))).not.toEqual(Buffer.from(first));
});

test('an empty value can be sealed', () => {
  const sealer = createSealer(key(1));
  expect(sealer.open(sealer.seal(new Uint8Array(), 'a'), 'a')).toHaveLength(0);
});

test('another key, another place, a changed or a cut value does not open', () => {
  const sealer = createSealer(key(1));
  const sealed = sealer.seal(Buffer.from('value'), 'a');
  const changed = Uint8Array.from(sealed);
  changed[changed.length - 1] = (changed[changed.length - 1] ?? 0) ^ 1;
  const attempts = [
    () => createSealer(key(2)).open(sealed, 'a'),
    () => sealer.open(sealed, 'b'),
    () => sealer.open(changed, 'a'),
    () => sealer.open(sealed.subarray(0, 20), 'a'),
    () => sealer.open(new Uint8Array(), 'a'),
  ];
  for (const attempt of attempts) expect(attempt).toThrow(/does not open with this key/);
});
