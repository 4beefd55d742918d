import { expect, test } from 'vitest';
import type { RulesInput } from '../../../agent/containers/network-filter.ts';
import {
  METADATA,
  changedRules,
  choiceProblem,
  closedUpdate,
  filterRules,
  frameRules,
  rangeProblem,
} from '../../../agent/containers/network-filter.ts';

const rules = (input: Partial<RulesInput> = {}): string =>
  filterRules({
    allowList: [],
    ownAddresses: [],
    openAddresses: [],
    nameServers: [],
    bridgeRanges: [],
    closedRanges: [],
    ...input,
  });
const closed4 = (text: string): string => text.split('\n').find((line) => line.includes('set closed4')) ?? '';
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
  expect(closed4(text)).not.toContain('192.0.2.7');
});

test('the bridge of the containers is closed, and what all of its containers would hear', () => {
  const text = rules({ bridgeRanges: ['172.18.0.0/16', 'fd00:1::/64'], ownAddresses: ['172.18.0.1'] });
  for (const range of ['172.18.0.0/16', '224.0.0.0/4', '255.255.255.255/32']) expect(closed4(text)).toContain(range);
  expect(text).toContain('fd00:1::/64');
  expect(text).toContain('ff00::/8');
});

test('an address of this machine that is opened stays open inside a closed range, and metadata never opens', () => {
  const text = rules({
    bridgeRanges: ['172.18.0.0/16'],
    ownAddresses: ['172.18.0.1', '169.254.7.7'],
    openAddresses: ['172.18.0.0/16', '169.254.0.0/16'],
  });
  expect(text).toContain('set opened4 { type ipv4_addr; flags interval; auto-merge; elements = { 172.18.0.1/32 }; }');
  expect(text).toContain('    ip daddr != @opened4 ip daddr @closed4 reject');
  expect(text).toContain('    ip6 daddr @closed6 reject');
});

test('what the operator closes is closed before an allow-list is read, but for names', () => {
  const text = rules({
    closedRanges: ['10.0.0.0/8', 'fd00::/8'],
    allowList: ['10.1.0.0/16'],
    nameServers: ['10.1.0.2', '10.2.0.2', '192.0.2.53'],
  });
  expect(closed4(text)).toContain('10.0.0.0/8');
  expect(text).toContain('fd00::/8');
  expect(at(text, /@closed4 reject/)).toBeLessThan(at(text, /@allowed4 accept/));
  // Only 10.1.0.2 is both closed and on the list; a server outside all closed ranges needs no rule.
  expect(text).toMatch(/ip daddr \{ 10\.1\.0\.2 \} meta l4proto \{ tcp, udp \} th dport 53 accept/);
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

test('frames of builds have the same closed ranges, and no source but their own', () => {
  const text = frameRules({
    allowList: [],
    ownAddresses: ['172.18.0.1', '192.0.2.7', '2001:db8::7'],
    openAddresses: ['192.0.2.7'],
    nameServers: ['172.18.0.1'],
    bridgeRanges: ['172.18.0.0/16'],
    closedRanges: ['10.0.0.0/8'],
  });
  for (const range of [...METADATA, '172.18.0.0/16', '10.0.0.0/8', '2001:db8::7/128']) expect(text).toContain(range);
  expect(closed4(text)).not.toContain('192.0.2.7');
  expect(text).toContain('hook egress device "eth0" priority 0; policy drop;');
  expect(at(text, /arp saddr ip \$self accept/)).toBeGreaterThan(0);
  expect(at(text, /ip saddr != \$self drop/)).toBeLessThan(at(text, /th dport 53 accept/));
  expect(at(text, /@opened4 accept/)).toBeLessThan(at(text, /@closed4 drop/));
  expect(at(text, /@closed6 drop/)).toBeLessThan(at(text, /meta protocol \{ ip, ip6 \} accept/));
});

test('the closed ranges can be replaced in every table of a filter, and are those that a new filter has', () => {
  const input: RulesInput = {
    allowList: ['0.0.0.0/0'],
    ownAddresses: ['192.0.2.7', '2001:db8::7'],
    openAddresses: ['192.0.2.9'],
    nameServers: [],
    bridgeRanges: ['172.18.0.0/16'],
    closedRanges: [],
  };
  const lines = closedUpdate(input, ['inet', 'netdev']).trimEnd().split('\n');
  expect(lines).toHaveLength(8);
  const elements = /elements = (\{.*\});/.exec(closed4(filterRules(input)))?.[1];
  for (const table of ['inet', 'netdev']) {
    const flushed = lines.indexOf(`flush set ${table} longshore closed4`);
    expect(lines[flushed + 1]).toBe(`add element ${table} longshore closed4 ${elements}`);
  }
  expect(lines.join('\n')).not.toContain('192.0.2.9');
});

test('a filter that changes judges every packet, both ways, and replaces the one before', () => {
  const input = {
    allowList: ['10.1.0.0/16'],
    ownAddresses: ['172.18.0.1'],
    openAddresses: [],
    nameServers: [],
    bridgeRanges: [],
    closedRanges: [],
  };
  const text = changedRules(input);
  expect(text.split('\n').slice(0, 3)).toEqual([
    'table inet longshore { }',
    'delete table inet longshore',
    'table inet longshore {',
  ]);
  expect(text).not.toContain('established');
  expect(text).toMatch(/ip daddr @closed4 meta l4proto tcp reject with tcp reset/);
  const [, incoming = ''] = text.split('chain in {');
  expect(incoming).toMatch(/ip saddr @closed4 drop[^]*ip saddr @allowed4 accept[^]*\n {4}drop\n/);
  expect(rules(input)).not.toContain('chain in');
  expect(rules(input)).toContain('established');
});

test('a blocked network lets out nothing but what stays inside, and keeps the sets that updates fill', () => {
  const text = rules({ blockNetwork: true, nameServers: ['192.0.2.53'], ownAddresses: ['192.0.2.53'] });
  const accepted = text.split('\n').filter((line) => line.endsWith('accept') && !/lo" accept|icmpv6/.test(line));
  expect(accepted).toEqual([]);
  expect(at(text, /127\.0\.0\.11 reject/)).toBeLessThan(at(text, /oif "lo" accept/));
  expect(text).toContain('set closed4');
});

test('a choice of a network that cannot be kept names its field', () => {
  expect(choiceProblem({ allowList: ['10.0.0.0/8'] })).toBeUndefined();
  expect(choiceProblem({ blockNetwork: true, allowList: ['10.0.0.0/8'] })).toMatch(/block_network exclude/);
  expect(choiceProblem({ allowList: ['example.com'] })).toMatch(/^allow_list: "example.com" is not an address range/);
  expect(choiceProblem({ allowList: Array.from({ length: 11 }, () => '10.0.0.0/8') })).toMatch(/more than 10/);
});
