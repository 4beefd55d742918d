import { execa } from 'execa';
import { expect, test } from 'vitest';
import { pickledResult } from '../../../scheduler/api/grpc/operations/pickle.ts';

/** JSON texts that name every kind of value, and some that look like a pickled result. */
const TEXTS = [
  'null',
  '1.0',
  ' [ ] ',
  '"it\'s"',
  '{"10":1,"9":2.0,"a":[1,-5,123456789012345678901234567890,1e3,true],"ä":"\\ud800x\\u0000"}',
  '{"base64":"gAQ="}',
  '{"base64":"gAQ=","encoding":"other"}',
  '{"base64":"gAQ=","encoding":"cloudpickle","more":1}',
];
const PROGRAM = `
import base64, json, pickle, sys

for line in sys.stdin:
    text, result = (base64.b64decode(part) for part in line.split())
    assert repr(pickle.loads(result)) == repr(json.loads(text)), (text, result)
print('the same')
`;

test('Python reads JSON results as it reads their JSON', { timeout: 60_000 }, async () => {
  const lines = TEXTS.map(
    (text) => `${Buffer.from(text).toString('base64')} ${pickledResult(text).toString('base64')}\n`,
  );
  const { stdout } = await execa('python3', ['-c', PROGRAM], { input: lines.join('') });
  expect(stdout).toBe('the same');
});

test('a result that its runner has pickled goes out as it is', () => {
  const bytes = Buffer.from([0x80, 4, 0x4b, 1, 0x2e]);
  const text = JSON.stringify({ base64: bytes.toString('base64'), encoding: 'cloudpickle' });
  expect(pickledResult(text)).toEqual(bytes);
});
