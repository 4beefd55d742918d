// A table of hostile addresses for the three guards of what workspaces make us dial: messages of webhooks, mounts of
// buckets, and pulls of images.
import { describe, expect, test } from 'vitest';
import { isIP } from 'node:net';
import { RegistryGuard } from '#agent/images/registry-guard.ts';
import { Guard } from '#agent/mounts/guard.ts';
import { OpenNetworks } from '#scheduler/tasks/webhooks/open-networks.ts';
import { permittedAddresses } from '#scheduler/tasks/webhooks/guard.ts';
import { AddressRules } from '#shared/address-rules.ts';

const rules = (text: string): AddressRules => {
  const read = AddressRules.read(text);
  if ('wrong' in read) throw new Error(read.wrong);
  return read;
};
/** A public address of this machine or of the scheduler's host. */
const OWN = '1.2.3.4';
const NAMES: Readonly<Record<string, readonly string[]>> = {
  localhost: ['127.0.0.1', '::1'],
  'localhost.': ['127.0.0.1'],
  'meta.example': ['169.254.169.254'],
  'mapped.example': ['::ffff:127.0.0.1'],
  'good.example': ['9.9.9.9'],
  'good.example.': ['9.9.9.9'],
  [OWN]: [OWN],
};
const addressesOf = (host: string): Promise<readonly string[]> =>
  NAMES[host] === undefined ? Promise.reject(new Error(`${host}: no such host`)) : Promise.resolve(NAMES[host]);

const mounts = new Guard({ allowed: rules(''), closed: rules('8.8.8.0/24'), schedulerHost: OWN, addressesOf });
const pulls = new RegistryGuard({
  opened: [],
  closedRanges: ['8.8.8.0/24'],
  ownAddresses: () => [OWN],
  bridgeRanges: () => Promise.resolve(['172.18.0.0/16']),
  addressesOf,
});
const webhooks = new OpenNetworks('', []);
/** Each guard's way from the host of a URL to the address that it dials. */
const GUARDS: Readonly<Record<string, (host: string) => Promise<unknown>>> = {
  webhooks: (host) =>
    permittedAddresses(`http://${host}:80/`, webhooks, async (name) =>
      (await addressesOf(name)).map((address) => ({ address, family: isIP(address) })),
    ),
  mounts: (host) => mounts.addressOf(hostIn(host)),
  pulls: (host) => pulls.addressesOf(hostIn(host), 'registry.example'),
};
/** Guards get the host of a parsed URL: other spellings of an IPv4 address are gone there. */
const hostIn = (host: string): string => {
  const url = URL.parse(`http://${host}:80/`);
  return url === null ? 'no host' : url.hostname.replace(/^\[(.*)\]$/, '$1');
};

/** Spellings in IPv6 that may reach an IPv4 address, by this kernel, a translator or a tunnel. */
const inside = (address: string): readonly string[] => {
  const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number);
  const [high, low] = [(a * 256 + b).toString(16), (c * 256 + d).toString(16)];
  const hex = (...bytes: readonly number[]): string => (bytes[0]! * 256 + bytes[1]!).toString(16);
  return [
    `[::ffff:${address}]`,
    `[::ffff:${high}:${low}]`,
    `[0:0:0:0:0:ffff:${high}:${low}]`,
    `[::ffff:0:${high}:${low}]`,
    `[::${high}:${low}]`,
    `[64:ff9b::${high}:${low}]`,
    `[64:ff9b::${address}]`,
    `[64:ff9b:1::${high}:${low}]`,
    `[64:ff9b:1:${high}:${hex(0, c)}:${hex(d, 0)}::]`,
    `[2002:${high}:${low}::]`,
    `[2002:${high}:${low}::1]`,
  ];
};

const CLOSED = {
  loopback: '127.0.0.1',
  'this host': '0.0.0.0',
  'this network': '0.1.2.3',
  metadata: '169.254.169.254',
  'a metadata service of one cloud': '168.63.129.16',
  multicast: '224.0.0.251',
  broadcast: '255.255.255.255',
};
/** In the range that the operator closed. */
const CLOSED_RANGE = '8.8.8.8';
const SPELLED = [
  '127.1',
  '127.0.1',
  '2130706433',
  '0x7f000001',
  '0x7f.0x0.0x0.0x1',
  '0177.0.0.1',
  '017700000001',
  '127.0.0.1.',
  '0',
  '0x0',
  '169.254.43518',
  '0xa9fea9fe',
  '%31%32%37.0.0.1',
  '１２７.0.0.1',
  '127。0。0。1',
];
const OTHERS = [
  '[::1]',
  '[::]',
  '[0:0:0:0:0:0:0:1]',
  '[fe80::1]',
  '[ff02::1]',
  '[fd00:ec2::254]',
  'localhost',
  'LOCALHOST',
  'localhost.',
  'meta.example',
  'mapped.example',
];

describe.each(Object.entries(GUARDS))('%s', (name, dialled) => {
  // Messages may go to public addresses of the scheduler, and there are no ranges that the operator closed to them.
  const addresses = [...Object.values(CLOSED), ...(name === 'webhooks' ? [] : [OWN, CLOSED_RANGE])];
  const table = [...addresses.flatMap((one) => [one, ...inside(one)]), ...SPELLED, ...OTHERS];
  test.each(table)('nothing is dialled for %s', async (host) => {
    await expect(dialled(host)).rejects.toThrow(/is not an address|is closed to images|no such host/);
  });

  test.each(['9.9.9.9', 'good.example', 'good.example.', '[2606:4700:4700::1111]', '[64:ff9b::909:909]'])(
    '%s is',
    async (host) => {
      await expect(dialled(host)).resolves.toBeDefined();
    },
  );
});

test.each(['127.0.0.1%25lo', '[fe80::1%25eth0]', '[fe80::1%eth0]', '[::1%lo]'])('%s is no URL with a host', (host) => {
  expect(URL.parse(`http://${host}:80/`)).toBeNull();
});

test.each(['::1%lo', 'fe80::1%eth0', '::ffff:127.0.0.1%lo', '64:ff9b::7f00:1%eth0', '2002:7f00:1::%eth0'])(
  'a resolver that gives %s opens nothing',
  async (address) => {
    expect(rules('').permits(address)).toBe(false);
    const found = { allowed: rules(''), closed: rules(''), schedulerHost: undefined };
    const guard = new Guard({ ...found, addressesOf: () => Promise.resolve([address]) });
    await expect(guard.addressOf('zone.example')).rejects.toThrow(/is not an address/);
    const { addressesOf: _own, ...parts } = { addressesOf, opened: [], closedRanges: [], ownAddresses: () => [] };
    const registry = new RegistryGuard({
      ...parts,
      bridgeRanges: () => Promise.resolve([]),
      addressesOf: () => Promise.resolve([address]),
    });
    await expect(registry.addressesOf('zone.example', 'zone.example')).rejects.toThrow(/is closed to images/);
  },
);

test('a resolver that fails does not open the scheduler’s host to mounts', async () => {
  let isAway = false;
  const guard = new Guard({
    allowed: rules(''),
    closed: rules(''),
    schedulerHost: 'scheduler.example',
    addressesOf: () => (isAway ? Promise.reject(new Error('no answer')) : Promise.resolve([OWN])),
  });
  await expect(guard.addressOf(OWN)).rejects.toThrow(/is not an address/);
  isAway = true;
  await expect(guard.addressOf(OWN)).rejects.toThrow(/is not an address/);
});
