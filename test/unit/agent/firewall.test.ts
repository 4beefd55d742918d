import { describe, expect, test } from 'vitest';
import type { FirewallFacts } from '../../../agent/preflight/firewall.ts';
import { firewallFindings } from '../../../agent/preflight/firewall.ts';
import { rulesOf } from '../../../agent/preflight/firewall-rules.ts';

const NAT = `-P POSTROUTING ACCEPT
-A POSTROUTING -s 172.18.0.0/16 ! -o br-1 -j MASQUERADE`;
const CHAINS = `table ip filter {
	chain FORWARD {
		type filter hook forward priority filter; policy drop;
	}
}
table inet firewalld {
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy accept;
	}
}
table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
	}
}`;
const GOOD: FirewallFacts = {
  network: { bridge: 'br-1', gateways: ['172.18.0.1'], subnets: ['172.18.0.0/16'] },
  forwards: true,
  hasIpv4Route: true,
  translation: NAT,
  chains: CHAINS,
  zone: undefined,
};
const found = (changes: Partial<FirewallFacts>): string[] =>
  firewallFindings({ ...GOOD, ...changes }).map(({ check, level, found: text }) => `${level} ${check}: ${text}`);

describe('the firewall of a host', () => {
  test('that lets containers out is said in one line, and so is one that cannot be looked at', () => {
    expect(found({})).toEqual(['ok firewall: lets containers out']);
    expect(found({ zone: 'docker' })).toEqual(['ok firewall: lets containers out']);
    expect(found({ network: undefined })).toEqual(['ok firewall: lets containers out']);
    const nothing = { forwards: undefined, hasIpv4Route: undefined, translation: undefined, chains: undefined };
    expect(found(nothing)).toEqual([expect.stringMatching(/^ok firewall: nothing seen/)]);
  });

  test('that keeps them in is warned of by what does', () => {
    expect(found({ forwards: false })).toEqual([expect.stringMatching(/^warning forwarding: off/)]);
    const other = { translation: '-P POSTROUTING ACCEPT\n-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE' };
    expect(found(other)).toEqual([
      expect.stringMatching(/^warning firewall: addresses of containers \(172\.18\.0\.0\/16\)/),
    ]);
    expect(found({ ...other, chains: 'table ip docker-bridges {\n}' })).toEqual(['ok firewall: lets containers out']);
    const drops = `${CHAINS}\ntable inet filter {\n\tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}`;
    expect(found({ chains: drops })).toEqual([
      expect.stringMatching(/^warning firewall: nftables: table inet filter drops/),
    ]);
    expect(found({ zone: 'public' })).toEqual([expect.stringMatching(/br-1 is in the zone public$/)]);
    expect(found({ zone: '' })).toEqual([expect.stringMatching(/br-1 is in no zone$/)]);
  });

  test('of a host with IPv6 alone needs a network with IPv6', () => {
    expect(found({ hasIpv4Route: false })).toEqual([expect.stringMatching(/^warning container network: .*no IPv6$/)]);
    const both = { bridge: 'br-1', gateways: [], subnets: ['172.18.0.0/16', 'fd00::/64'] };
    expect(found({ hasIpv4Route: false, network: both })).toEqual(['ok firewall: lets containers out']);
  });

  test('has a remedy for each warning', () => {
    const all = firewallFindings({ ...GOOD, forwards: false, hasIpv4Route: false, translation: '-P X', zone: 'work' });
    expect(all).toHaveLength(4);
    expect(all.every(({ level, remedy }) => level === 'warning' && remedy !== '')).toBe(true);
  });

  test('is judged by what nft shows of it, where iptables-nft or Docker made the rules', () => {
    const told = (legacy: string, ...nat: readonly string[]) =>
      found(rulesOf([...CHAINS.split('\n'), '# legacy', legacy, '# translation', 'table ip nat {', ...nat, '}']));
    const rule = (range: string): string => `\t\toifname != "br-1" ip saddr ${range} counter packets 0 bytes 0 `;
    expect(told('', rule('172.18.0.0/16'))).toEqual(['ok firewall: lets containers out']);
    const flushed = [expect.stringMatching(/^warning firewall: addresses of containers \(172\.18\.0\.0\/16\)/)];
    expect(told('', rule('172.17.0.0/16'))).toEqual(flushed);
    expect(told('')).toEqual(flushed);
    // nft does not show rules of the legacy iptables.
    expect(told('nat')).toEqual(['ok firewall: lets containers out']);
    expect(rulesOf(['a shell that broke'])).toEqual({ translation: undefined, chains: undefined });
  });
});
