/**
 * Checks whether containers' packets get out of this host. Forbidden addresses are blocked inside the containers' own
 * network namespaces, and no setting here changes that. The way out depends on the host's forwarding, the engine's
 * address translation, and every other filter here. Warnings at worst: containers without a need for network run all
 * the same.
 */
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import type { NetworkFacts } from '../containers/runtime.ts';
import { programOutput } from './program-output.ts';
import type { Finding } from './finding.ts';
import { ok, warning } from './finding.ts';

const ASK_MS = 3000;

/** Facts in the host's own format; undefined where they cannot be known, such as for a user without the right. */
export interface FirewallFacts {
  /** The containers' network; undefined: the agent has not created it yet. */
  readonly network: NetworkFacts | undefined;
  readonly forwards: boolean | undefined;
  /** The host has a default route by IPv4. */
  readonly hasIpv4Route: boolean | undefined;
  /** `iptables -t nat -S POSTROUTING` */
  readonly translation: string | undefined;
  /** `nft list chains` */
  readonly chains: string | undefined;
  /**
   * firewalld's zone of the bridge; empty: firewalld runs, and the bridge is in no zone; undefined: firewalld does not
   * run.
   */
  readonly zone: string | undefined;
}

/** Rules in the words of `iptables` and `nft`. */
export type Rules = Pick<FirewallFacts, 'translation' | 'chains'>;
export const UNKNOWN_RULES: Rules = { translation: undefined, chains: undefined };

/** @param readRules - asked for rules that this user may not read */
export async function readFirewall(
  network: NetworkFacts | undefined,
  readRules: () => Promise<Rules> = () => Promise.resolve(UNKNOWN_RULES),
): Promise<FirewallFacts> {
  const read = (path: string): Promise<string | undefined> => readFile(path, 'utf8').catch(() => undefined);
  const ask = async (program: string, ...args: readonly string[]): Promise<string | undefined> =>
    (await programOutput(program, args, ASK_MS)) || undefined;
  const [forwarding, routes, translation, chains, state] = await Promise.all([
    read('/proc/sys/net/ipv4/ip_forward'),
    read('/proc/net/route'),
    ask('iptables', '-t', 'nat', '-S', 'POSTROUTING'),
    ask('nft', 'list', 'chains'),
    ask('firewall-cmd', '--state'),
  ]);
  const bridge = network?.bridge ?? '';
  const zone =
    state?.trim() === 'running' && bridge !== ''
      ? ((await ask('firewall-cmd', `--get-zone-of-interface=${bridge}`)) ?? '').trim()
      : undefined;
  const rules = translation === undefined && chains === undefined ? await readRules() : { translation, chains };
  return {
    network,
    forwards: forwarding === undefined ? undefined : forwarding.trim() !== '0',
    hasIpv4Route: routes === undefined ? undefined : /^\S+\t00000000\t/m.test(routes),
    ...rules,
    zone,
  };
}

/** Findings about the firewall, from its facts. Pure. */
export function firewallFindings(facts: FirewallFacts): Finding[] {
  const { network, zone } = facts;
  const bad = [
    ...(facts.forwards === false
      ? [
          warning(
            'forwarding',
            'off: containers reach nothing outside this host',
            'set net.ipv4.ip_forward = 1 in a file of /etc/sysctl.d that comes last, then: sudo sysctl --system',
          ),
        ]
      : []),
    ...translationFinding(facts),
    ...dropping(facts.chains ?? '').map((table) =>
      warning(
        'firewall',
        `nftables: table ${table} drops what is forwarded unless a rule of it lets that pass`,
        `let the containers' bridge pass there, both ways${network === undefined ? '' : `: iifname "${network.bridge}" accept; oifname "${network.bridge}" ct state established,related accept`}`,
      ),
    ),
    ...(zone === undefined || zone === 'docker' || zone === 'trusted'
      ? []
      : [
          warning(
            'firewall',
            `firewalld: the containers' bridge ${network?.bridge ?? ''} is in ${zone === '' || zone === 'no zone' ? 'no zone' : `the zone ${zone}`}`,
            `sudo firewall-cmd --permanent --zone=docker --add-interface=${network?.bridge ?? ''} && sudo firewall-cmd --reload, or restart Docker while firewalld runs`,
          ),
        ]),
    ...wayOut(facts),
  ];
  if (bad.length > 0) return bad;
  const unseen = facts.translation === undefined && facts.chains === undefined;
  return [
    ok(
      'firewall',
      unseen
        ? 'nothing seen that keeps containers in; its rules could not be read, which needs root, and iptables or nft'
        : 'lets containers out',
    ),
  ];
}

/** Without a rule for the bridge's range, answers to containers' packets find no way back. */
function translationFinding({ network, translation, chains = '' }: FirewallFacts): Finding[] {
  const ranges = (network?.subnets ?? []).filter((range) => isIP(range.split('/')[0] ?? '') === 4);
  // Docker 29 can keep its rules in its own tables of nftables.
  if (translation === undefined || chains.includes('docker-bridges')) return [];
  const lacking = ranges.filter(
    (range) =>
      !translation.split('\n').some((rule) => rule.includes(`-s ${range} `) && /-j (MASQUERADE|SNAT)/.test(rule)),
  );
  if (lacking.length === 0) return [];
  return [
    warning(
      'firewall',
      `addresses of containers (${lacking.join(', ')}) are not translated: Docker's rules are not there`,
      'a reload of nftables or iptables removes them ("flush ruleset"): sudo systemctl restart docker, and load your own rules without flushing those of others. With "iptables": false in /etc/docker/daemon.json, remove that',
    ),
  ];
}

/** Tables whose forward chain drops by default, except those of iptables, which Docker manages. Pure. */
function dropping(chains: string): string[] {
  const found: string[] = [];
  let table = '';
  let hook = '';
  for (const line of chains.split('\n')) {
    table = /^\s*table (\S+ \S+) \{/.exec(line)?.[1] ?? table;
    if (/^\s*chain /.test(line)) hook = '';
    hook = /hook (\w+)/.exec(line)?.[1] ?? hook;
    const isIptables = /^(ip|ip6) (filter|raw|mangle|nat|security)$/.test(table) || /docker/.test(table);
    if (hook === 'forward' && /policy drop/.test(line) && !isIptables) found.push(table);
  }
  return [...new Set(found)];
}

function wayOut({ network, hasIpv4Route }: FirewallFacts): Finding[] {
  const hasIpv6 = network?.subnets.some((range) => isIP(range.split('/')[0] ?? '') === 6) ?? false;
  if (hasIpv4Route !== false || hasIpv6) return [];
  return [
    warning(
      'container network',
      'this host has no way out by IPv4, and the network of its containers has no IPv6',
      'make the network with --ipv6 before the agent starts, as docs/networks.md says; containers that need no network run all the same',
    ),
  ];
}
