import { expect, test } from 'vitest';
import type { RulesInput } from '../../../agent/containers/holder-rules.ts';
import { METADATA, holderRules, rangeProblem } from '../../../agent/containers/holder-rules.ts';

const rules = (input: Partial<RulesInput> = {}): string =>
  holderRules({ allowList: [], ownAddresses: [], openAddresses: [], nameServers: [], ...input });
const at = (text: string, line: RegExp): number => text.split('\n').findIndex((one) => line.test(one));

test('metadata addresses are closed, and nothing else that is not this machine', () => {
  const text = rules();
  for (const range of METADATA) expect(text).toContain(range);
  expect(text).toContain('policy accept');
  expect(text.trimEnd().split('\n').at(-3)).toMatch(/ip6 daddr @closed6 reject/);
});

test("this machine's addresses are closed, but those that an operator opens", () => {
  const text = rules({ ownAddresses: ['172.18.0.1', '192.0.2.7', '2001:db8::7'], openAddresses: ['192.0.2.0/28'] });
  expect(text).toContain('172.18.0.1/32');
  expect(text).toContain('2001:db8::7/128');
  expect(text).not.toContain('192.0.2.7');
});

test('a name server of this machine itself can be asked for names, and for nothing else', () => {
  const text = rules({ ownAddresses: ['192.0.2.7'], nameServers: ['192.0.2.7', '192.0.2.1'] });
  expect(text).toMatch(/ip daddr \{ 192\.0\.2\.7 \} meta l4proto \{ tcp, udp \} th dport 53 accept/);
  expect(at(text, /dport 53/)).toBeLessThan(at(text, /@closed4 reject/));
});

test('with an allow-list only its ranges are reachable, and never what is closed', () => {
  const text = rules({ allowList: ['0.0.0.0/0', 'fd00::/8'], ownAddresses: ['172.18.0.1'] });
  expect(at(text, /@closed4 reject/)).toBeLessThan(at(text, /@allowed4 accept/));
  expect(at(text, /@allowed6 accept/)).toBeLessThan(at(text, /^ {4}reject/));
});

test('with an allow-list names are found only when it has a name server in it', () => {
  const nameServers = ['10.0.0.53'];
  expect(rules({ allowList: ['192.0.2.0/24'], nameServers })).toMatch(/ip daddr 127\.0\.0\.11 reject/);
  expect(rules({ allowList: ['10.0.0.0/8'], nameServers })).not.toMatch(/127\.0\.0\.11/);
  expect(rules({ nameServers })).not.toMatch(/127\.0\.0\.11/);
});

test('a range is an address and a length, and nothing that a filter could read as more', () => {
  for (const good of ['10.0.0.0/8', '0.0.0.0/0', 'fd00:ec2::254/128']) expect(rangeProblem(good)).toBeUndefined();
  for (const bad of ['', '10.0.0.0', '10.0.0.0/33', 'fd00::/129', '10.0.0.0/8 }', '10.0.0.0/8\n', 'a/8', '1.2.3/8'])
    expect(rangeProblem(bad)).toMatch(/is not an address range/);
});
