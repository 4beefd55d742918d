import { describe, expect, test } from 'vitest';
import { AddressRules } from '#shared/address-rules.ts';
import { urlProblem } from '#scheduler/tasks/webhooks/guard.ts';

function rules(text = ''): AddressRules {
  const read = AddressRules.read(text);
  if (!(read instanceof AddressRules)) throw new Error(`not networks: ${read.wrong}`);
  return read;
}

describe('without a setting', () => {
  test.each([
    '1.1.1.1',
    '8.8.8.8',
    '93.184.215.14',
    '172.15.255.255',
    '172.32.0.0',
    '192.167.255.255',
    '2606:4700:4700::1111',
    '2a00:1450:4001:82a::200e',
    '::ffff:8.8.8.8',
    // A translator of IPv6 networks, to a public address.
    '64:ff9b::808:808',
  ])('%s may be dialled', (address) => expect(rules().permits(address)).toBe(true));

  test.each([
    ['this host', '0.0.0.0'],
    ['this network', '0.1.2.3'],
    ['loopback', '127.0.0.1'],
    ['loopback, its other end', '127.255.255.254'],
    ['private', '10.0.0.1'],
    ['private', '172.16.0.1'],
    ['private', '172.31.255.255'],
    ['private', '192.168.1.1'],
    ['link-local', '169.254.1.1'],
    ['metadata of most clouds', '169.254.169.254'],
    ['metadata of one cloud', '168.63.129.16'],
    ['metadata of one cloud', '100.100.100.200'],
    ['shared by carriers', '100.64.0.1'],
    ['protocol assignments', '192.0.0.8'],
    ['documentation', '192.0.2.1'],
    ['documentation', '198.51.100.7'],
    ['documentation', '203.0.113.7'],
    ['benchmarks', '198.18.0.1'],
    ['relay of 6to4', '192.88.99.1'],
    ['multicast', '224.0.0.1'],
    ['multicast', '239.255.255.250'],
    ['reserved', '240.0.0.1'],
    ['broadcast', '255.255.255.255'],
    ['this host', '::'],
    ['loopback', '::1'],
    ['loopback behind IPv6', '::ffff:127.0.0.1'],
    ['private behind IPv6', '::ffff:a00:1'],
    ['loopback, the old way', '::127.0.0.1'],
    ['link-local', 'fe80::1'],
    ['site-local', 'fec0::1'],
    ['unique local', 'fc00::1'],
    ['unique local', 'fd12:3456:789a::1'],
    ['metadata of one cloud', 'fd00:ec2::254'],
    ['multicast', 'ff02::1'],
    ['documentation', '2001:db8::1'],
    ['discarded', '100::1'],
    ['Teredo', '2001::1'],
    ['6to4 of a private address', '2002:a00:1::1'],
    ['translated loopback', '64:ff9b::7f00:1'],
    ['translated private', '64:ff9b::10.0.0.1'],
    ['a local translator', '64:ff9b:1::808:808'],
    ['not routed', '4000::1'],
    ['no address', 'localhost'],
    ['no address', '127.1'],
    ['nothing', ''],
  ])('%s (%s) may not', (_, address) => expect(rules().permits(address)).toBe(false));
});

test('what the operator names may be dialled, and nothing beside it', () => {
  const named = rules('127.0.0.0/8, 10.1.0.0/16,fd00:1::/32 , 192.168.7.7');
  for (const address of ['127.0.0.1', '::ffff:127.0.0.1', '10.1.255.1', 'fd00:1::5', '192.168.7.7'])
    expect(named.permits(address), address).toBe(true);
  for (const address of ['10.2.0.1', 'fd00:2::5', '192.168.7.8', '::1', '169.254.169.254'])
    expect(named.permits(address), address).toBe(false);
});

test.each([
  ['10.0.0.0/33', '10.0.0.0/33'],
  ['127.0.0.1, localhost', 'localhost'],
  ['10/8', '10/8'],
  ['10.1.0.0/16;10.2.0.0/16', '10.1.0.0/16;10.2.0.0/16'],
])('a setting of %j is refused by what is wrong in it', (text, wrong) => {
  expect(AddressRules.read(text)).toEqual({ wrong });
});

describe('a URL', () => {
  test.each([
    ['https://example.com/hook?x=1', undefined],
    ['http://example.com:8080/', undefined],
    // Whether a name leads to a permitted address is known when it is dialled.
    ['http://localhost/', undefined],
    ['https://[2606:4700:4700::1111]/', undefined],
    ['ftp://example.com/', /http or https/],
    ['example.com/hook', /http or https/],
    ['/hook', /http or https/],
    ['https://user:secret@example.com/', /user name or a password/],
    ['http://127.0.0.1/', /127\.0\.0\.1.*LONGSHORE_WEBHOOK_ALLOW/],
    // Other spellings of the same address.
    ['http://2130706433/', /127\.0\.0\.1/],
    ['http://0x7f.1/', /127\.0\.0\.1/],
    ['http://0177.0.0.1/', /127\.0\.0\.1/],
    ['http://[::1]:80/', /::1/],
    ['http://[::ffff:169.254.169.254]/', /a9fe:a9fe/],
    [`https://example.com/${'x'.repeat(2048)}`, /2048 characters/],
    // Texts that the parser takes, but the database does not, or that would be dialled otherwise than they are stored.
    ['https://example.com/a\0b', /control characters/],
    ['https://example.com/a\u007fb', /control characters/],
    ['https://exam\nple.com/', /control characters/],
    [' https://example.com/', /spaces/],
    ['https://example.com/a b', /spaces/],
    ['https://example.com/\ud83d', /surrogate/],
    ['https://example.com/größe/😀', undefined],
  ])('%j', (url, problem) => {
    const said = urlProblem(url, rules());
    if (problem === undefined) expect(said).toBeUndefined();
    else expect(said).toMatch(problem);
  });
});
