// Which host an agent runs in, from texts as machines have them, and when two descriptions are one host.
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { identityFrom, inWords, isNobody, isSameHost, merged, uuidOf } from '#shared/domain/host-identity.ts';
import type { HostIdentity } from '#shared/domain/host-identity.ts';
import { hostFromHeader, hostHeader } from '#shared/protocol/host-header.ts';
import { hostIdentityOf, readHostIdentity } from '#agent/telemetry/host-identity.ts';
import type { Card, IdentityFacts } from '#agent/telemetry/host-identity.ts';
import { tempDirectory } from '../../helpers/services.ts';

const UUID = '4c4c4544-0042-3510-8034-b4c04f4d3232';
const card = (address: string, more: Partial<Card> = {}): Card => ({
  type: '1',
  address,
  permanentAddress: '',
  addressKind: '0',
  device: '/sys/devices/pci0000:00/0000:00:1c.0/0000:3b:00.0',
  ...more,
});
const facts = (given: Partial<IdentityFacts>): IdentityFacts => ({
  vendor: 'Dell Inc.',
  boardAsset: '',
  productSerial: 'B51B4M2',
  productUuid: UUID,
  cloudInit: '',
  cards: [card('b0:26:28:11:22:33')],
  ...given,
});
const cloudInit = (cloud: string, id: string): string =>
  JSON.stringify({ v1: { cloud_name: cloud, instance_id: id, platform: cloud } });

describe('the identity that follows from the texts of a host', () => {
  test.for([
    ['a server', {}, { instanceId: '', uuid: UUID }],
    [
      'an instance of EC2',
      { vendor: 'Amazon EC2', boardAsset: 'i-0123456789abcdef0', cloudInit: cloudInit('aws', 'i-0123456789abcdef0') },
      { instanceId: 'aws:i-0123456789abcdef0' },
    ],
    [
      'an instance of Google, whose cloud-init has another id',
      {
        vendor: 'Google',
        productSerial: 'GoogleCloud-0F1E2D3C4B5A69788796A5B4C3D2E1F0',
        cloudInit: cloudInit('gce', '7203411'),
      },
      { instanceId: 'gce:GoogleCloud-0F1E2D3C4B5A69788796A5B4C3D2E1F0' },
    ],
    ['Google without the serial', { vendor: 'Google', cloudInit: cloudInit('gce', '7203411') }, { instanceId: '' }],
    ['a server of Hetzner', { vendor: 'Hetzner', productSerial: '48123456' }, { instanceId: 'hetzner:48123456' }],
    [
      'OpenStack',
      { vendor: 'OpenStack Foundation', cloudInit: cloudInit('openstack', 'ad8c0bd1-5f1a-4a0b-9a12-3c8d7f5f0e11') },
      { instanceId: 'openstack:ad8c0bd1-5f1a-4a0b-9a12-3c8d7f5f0e11' },
    ],
    ['an id that an operator wrote', { cloudInit: cloudInit('nocloud', 'iid-local01') }, { instanceId: '' }],
    ['cloud-init that is no JSON', { cloudInit: '{' }, { instanceId: '' }],
  ] as const)('of %s', ([, given, wanted]) => {
    expect(hostIdentityOf(facts(given))).toMatchObject(wanted);
  });

  test('UUIDs that many machines have are none', () => {
    for (const junk of [
      '03000200-0400-0500-0006-000700080009',
      '00000000-0000-0000-0000-000000000000',
      'FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF',
      'Not Settable',
      '',
    ])
      expect(uuidOf(junk), junk).toBe('');
    expect(uuidOf(`${UUID.toUpperCase()}\n`)).toBe(UUID);
  });

  test("cards are the host's own: no bridges, no addresses made by chance, no management controller on USB", () => {
    const cards = [
      card('b0:26:28:11:22:34'),
      card('B0:26:28:11:22:33'),
      card('02:42:ac:11:00:01', { device: '' }),
      card('aa:bb:cc:00:00:01', { addressKind: '1' }),
      card('7e:00:00:00:00:02', { device: '/sys/devices/pci0000:00/0000:00:14.0/usb1/1-7/1-7:1.0' }),
      card('b0:26:28:11:22:33', { addressKind: '2', permanentAddress: 'b0:26:28:11:22:35' }),
      card('80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01', { type: '32' }),
      card('00:00:00:00:00:00'),
    ];
    expect(hostIdentityOf(facts({ cards })).macs).toEqual([
      'b0:26:28:11:22:33',
      'b0:26:28:11:22:34',
      'b0:26:28:11:22:35',
    ]);
  });

  test('it is read from files of the kernel, and nothing of the disk counts', async () => {
    const made = tempDirectory('identity');
    const file = (path: string, text: string): void => {
      mkdirSync(dirname(join(made.path, path)), { recursive: true });
      writeFileSync(join(made.path, path), text);
    };
    try {
      file('etc/machine-id', 'd41d8cd98f00b204e9800998ecf8427e\n');
      file('var/lib/cloud/data/instance-id', 'i-0aaaaaaaaaaaaaaaa\n');
      expect(isNobody(await readHostIdentity(made.path))).toBe(true);
      file('sys/class/dmi/id/product_uuid', `${UUID.toUpperCase()}\n`);
      file('sys/devices/pci/0000:01/net/eth0/address', 'b0:26:28:11:22:33\n');
      file('sys/devices/pci/0000:01/net/eth0/type', '1\n');
      symlinkSync('..', join(made.path, 'sys/devices/pci/0000:01/net/eth0/device'));
      mkdirSync(join(made.path, 'sys/class/net'), { recursive: true });
      symlinkSync('../../devices/pci/0000:01/net/eth0', join(made.path, 'sys/class/net/eth0'));
      expect(await readHostIdentity(made.path)).toEqual({ instanceId: '', uuid: UUID, macs: ['b0:26:28:11:22:33'] });
    } finally {
      made.remove();
    }
  });
});

describe('whether two descriptions are one host', () => {
  const host = (given: Partial<HostIdentity>): HostIdentity => identityFrom(given);
  const A = 'b0:26:28:11:22:33';
  const B = 'b0:26:28:99:99:99';
  const OTHER = '4c4c4544-0042-3510-8034-b4c04f4d9999';
  test.for([
    [
      'the instance decides, whatever else differs',
      { instanceId: 'aws:i-1', uuid: UUID },
      { instanceId: 'aws:i-1', uuid: OTHER },
      true,
    ],
    [
      'another instance',
      { instanceId: 'aws:i-1', uuid: UUID, macs: [A] },
      { instanceId: 'aws:i-2', uuid: UUID, macs: [A] },
      false,
    ],
    ['an instance whose id is not told now', { instanceId: 'aws:i-1', uuid: UUID }, { uuid: UUID }, true],
    ['a card that was replaced', { uuid: UUID, macs: [A] }, { uuid: UUID, macs: [B] }, true],
    ['another UUID with the same card', { uuid: UUID, macs: [A] }, { uuid: OTHER, macs: [A] }, false],
    ['the UUID in the other byte order', { uuid: UUID }, { uuid: '44454c4c-4200-1035-8034-b4c04f4d3232' }, true],
    ['firmware that lost its UUID', { uuid: UUID, macs: [A, B] }, { macs: [B] }, true],
    ['without UUIDs, other cards', { macs: [A] }, { macs: [B] }, false],
    ['a host of which nothing is known', { uuid: UUID, macs: [A] }, {}, true],
  ] as const)('%s', ([, known, shown, same]) => {
    const [left, right] = [
      host({ ...known, macs: [...('macs' in known ? known.macs : [])] }),
      host({ ...shown, macs: [...('macs' in shown ? shown.macs : [])] }),
    ];
    expect(isSameHost(left, right, false)).toBe(same);
    expect(isSameHost(right, left, false)).toBe(same);
  });

  test('where several hosts have a UUID, the cards decide', () => {
    const known = host({ uuid: UUID, macs: [A] });
    expect(isSameHost(known, host({ uuid: UUID, macs: [B] }), true)).toBe(false);
    expect(isSameHost(known, host({ uuid: UUID, macs: [A, B] }), true)).toBe(true);
  });

  test('a fact that is not shown now is kept', () => {
    const known = host({ instanceId: 'aws:i-1', uuid: UUID, macs: [A] });
    expect(merged(known, host({ macs: [B] }))).toEqual({ ...known, macs: [B] });
    expect(inWords(known)).toBe('instance i-1');
    expect(inWords(host({ uuid: UUID }))).toBe(`UUID ${UUID}`);
  });
});

test('a host shows itself in a header of printable ASCII, and nonsense shows nothing', () => {
  const identity = identityFrom({ instanceId: 'aws:i-1', uuid: UUID, macs: ['b0:26:28:11:22:33'] });
  const text = hostHeader({ hostname: 'gpu-é\n7', identity });
  expect(text).toMatch(/^[ -~]+$/);
  expect(hostFromHeader(text)).toEqual({ hostname: 'gpu-??7', identity });
  for (const nonsense of ['', '{', '[]', 'x'.repeat(5000)]) expect(hostFromHeader(nonsense)).toBeNull();
  const hostile = JSON.stringify({ hostname: 5, instanceId: 'aws:\u001b[2J', uuid: [], macs: ['x', 5, null] });
  expect(hostFromHeader(hostile)).toEqual({ hostname: '', identity: { instanceId: '', uuid: '', macs: [] } });
});
