import { networkInterfaces } from 'node:os';
import { expect, test } from 'vitest';
import { localAddresses4, localAddresses6, machineAddresses } from '../../../agent/telemetry/addresses.ts';

const ROUTES = `Main:
  +-- 0.0.0.0/0 3 0 4
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
     +-- 172.17.0.0/16 2 0 2
        +-- 172.17.0.0/31 1 0 0
           |-- 172.17.0.0
              /16 link UNICAST
           |-- 172.17.0.1
              /32 host LOCAL
        |-- 172.17.255.255
           /32 link BROADCAST
     |-- 198.18.250.2
        /31 host LOCAL
     |-- 198.51.100.4
        /30 link UNICAST
        /32 host LOCAL
`;

test('addresses of interfaces without a carrier count, as the routes have them', () => {
  expect(localAddresses4(ROUTES)).toEqual(['172.17.0.1', '198.51.100.4']);
});

test('addresses of IPv6 count but for those of one link or of this host', () => {
  const listed = [
    'fe8000000000000000fc00fffe000001 04 40 20 80     eth0',
    '00000000000000000000000000000001 01 80 10 80       lo',
    '20010db8000000000000000000000002 04 40 00 82     eth0',
  ];
  expect(localAddresses6(`${listed.join('\n')}\n`)).toEqual(['2001:0db8:0000:0000:0000:0000:0000:0002']);
});

test("this machine's addresses hold those that Node lists", () => {
  const listed = Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .filter(({ internal, family }) => !internal && family === 'IPv4')
    .map(({ address }) => address);
  expect(machineAddresses().own).toEqual(expect.arrayContaining(listed));
});
