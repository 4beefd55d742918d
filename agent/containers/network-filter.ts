/**
 * The packet filter that a pause container sets in its network namespace: the addresses that a container may not reach.
 * Pure. Control over the text of these rules would open the machine: ranges arrive checked (`rangeProblem`), and
 * all other text is ours.
 */
import { BlockList, isIP } from 'node:net';

/**
 * Addresses of cloud metadata services: a machine's identity, credentials and start-up data. Link-local ranges belong
 * to them as a whole.
 */
export const METADATA = [
  '169.254.0.0/16',
  'fe80::/10',
  'fd00:ec2::/32', // AWS
  'fd20:ce::254/128', // Google
  'fd00:42::42/128', // Scaleway
  '100.100.100.200/32', // Alibaba
  '168.63.129.16/32', // Azure
  '192.0.0.192/32', // Oracle
] as const;
/** Multicast and broadcast addresses, which reach every container of a bridge. */
const EVERYBODY = ['224.0.0.0/4', '255.255.255.255/32', 'ff00::/8'] as const;
/** Loopback, and the addresses that mean the same where they are dialled. */
const THIS_HOST = ['127.0.0.0/8', '0.0.0.0/8', '::1/128', '::/128'] as const;
/** Messages by which IPv6 finds the machines of a link. */
const NEIGHBOURS = 'icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept';
/** The engine's own resolver, inside every network namespace on a network of ours. */
const ENGINE_RESOLVER = '127.0.0.11';

/** Addresses that a container may reach. */
export interface NetworkChoice {
  /** True: nothing leaves the namespace. */
  readonly blockNetwork?: boolean;
  /** Ranges that it may reach; none: everything except closed ranges. */
  readonly allowList: readonly string[];
}

const MAX_RANGES = 10;

/** @returns why a choice cannot be kept, naming the field; undefined: it can */
export function choiceProblem({ blockNetwork = false, allowList }: NetworkChoice): string | undefined {
  if (allowList.length > MAX_RANGES) return `allow_list has more than ${MAX_RANGES} entries`;
  if (blockNetwork && allowList.length > 0) return 'allow_list and block_network exclude each other';
  const badRange = allowList.map(rangeProblem).find((problem) => problem !== undefined);
  return badRange === undefined ? undefined : `allow_list: ${badRange}`;
}

export interface RulesInput extends NetworkChoice {
  /** Addresses of this machine, including the machine's side of the containers' bridge. */
  readonly ownAddresses: readonly string[];
  /** Own addresses (ranges too) that containers may reach nevertheless. */
  readonly openAddresses: readonly string[];
  /** Ranges of the containers' own bridge: containers of every workspace. */
  readonly bridgeRanges: readonly string[];
  /** Ranges that the operator closes. */
  readonly closedRanges: readonly string[];
  /** Name servers of this machine; the engine asks them from inside the container's namespace. */
  readonly nameServers: readonly string[];
}

/** @returns why a text is not an address range such as 10.0.0.0/8; undefined when it is one */
export function rangeProblem(text: string): string | undefined {
  const [, address, bits] = /^([0-9A-Fa-f:.]{2,45})\/([0-9]{1,3})$/.exec(text) ?? [];
  const version = isIP(address ?? '');
  if (version !== 0 && Number(bits) <= (version === 4 ? 32 : 128)) return undefined;
  return `${JSON.stringify(text.slice(0, 60))} is not an address range such as 10.0.0.0/8`;
}

/** The rules as `nft -f` reads them. */
export const filterRules = (input: RulesInput): string => tableOf(input, input.blockNetwork === true);

/**
 * A transaction of `nft -f` that replaces a filter while its container runs. Every packet is judged then, also those of
 * connections that are open: a forbidden one is reset when it sends, and hears nothing more of its other end.
 */
export const changedRules = (input: RulesInput): string =>
  `table inet longshore { }\ndelete table inet longshore\n${tableOf(input, true)}`;

/** @param judgesAll - packets of open connections too, both ways */
function tableOf(input: RulesInput, judgesAll: boolean): string {
  const { blockNetwork = false } = input;
  const { closed, own, opened } = closedOf(input);
  const closedHere = blockListOf([...input.closedRanges, ...own.map(asRange)]);
  const allowed = blockListOf(input.allowList);
  const isListed = input.allowList.length > 0;
  const mayAsk = blockNetwork ? [] : input.nameServers.filter((address) => !isListed || isIn(allowed, address));
  // Loopback name servers are queried by the engine itself, from outside: only its resolver inside can be closed.
  const closesNames = blockNetwork || (isListed && mayAsk.length === 0);
  const reject = 'reject with icmpx type admin-prohibited';
  // An address that the operator opens lies in a closed range, such as the bridge's. Traffic to it still depends on the
  // allow-list.
  const but = (family: 'ip' | 'ip6', version: 4 | 6): string =>
    opened.some((address) => isIP(address) === version) ? `${family} daddr != @opened${version} ` : '';
  // An open connection ends at a reset, and would only wait at any other refusal.
  const refused = (match: string): string[] => [
    ...(judgesAll ? [`${match}meta l4proto tcp reject with tcp reset`] : []),
    `${match}${reject}`,
  ];
  const names = byVersion(mayAsk.filter((address) => isIn(closedHere, address)));
  const lines = [
    ...(judgesAll ? [] : ['ct state established,related accept']),
    NEIGHBOURS,
    ...(closesNames ? [`ip daddr ${ENGINE_RESOLVER} ${reject}`] : []),
    'oif "lo" accept',
    ...names.flatMap(([family, list]) => [
      `${family} daddr { ${list.join(', ')} } meta l4proto { tcp, udp } th dport 53 accept`,
    ]),
    ...refused(`${but('ip', 4)}ip daddr @closed4 `),
    ...refused(`${but('ip6', 6)}ip6 daddr @closed6 `),
    ...(isListed ? ['ip daddr @allowed4 accept', 'ip6 daddr @allowed6 accept'] : []),
    ...(isListed || blockNetwork ? refused('') : []),
  ];
  const from = (text: string): string => text.replaceAll('daddr', 'saddr');
  // Messages on packets that were too large come from machines on the way.
  const linesIn = [
    NEIGHBOURS,
    'iif "lo" accept',
    ...(blockNetwork ? [] : ['meta l4proto { 1, 58 } ct state related accept']),
    ...names.flatMap(([family, list]) => [
      `${family} saddr { ${list.join(', ')} } meta l4proto { tcp, udp } th sport 53 accept`,
    ]),
    `${from(but('ip', 4))}ip saddr @closed4 drop`,
    `${from(but('ip6', 6))}ip6 saddr @closed6 drop`,
    ...(isListed ? ['ip saddr @allowed4 accept', 'ip6 saddr @allowed6 accept'] : []),
    ...(isListed || blockNetwork ? ['drop'] : []),
  ];
  return [
    'table inet longshore {',
    ...sets('closed', closed),
    ...(opened.length > 0 ? sets('opened', opened.map(asRange)) : []),
    ...(isListed ? sets('allowed', input.allowList) : []),
    '  chain out {',
    '    type filter hook output priority 0; policy accept;',
    ...lines.map((line) => `    ${line}`),
    '  }',
    ...(judgesAll
      ? [
          '  chain in {',
          '    type filter hook input priority 0; policy accept;',
          ...linesIn.map((line) => `    ${line}`),
          '  }',
        ]
      : []),
    '}',
    '',
  ].join('\n');
}

/**
 * The same closed ranges once more, on the network device itself, for steps of builds. The engine's builder leaves them
 * the right to raw sockets, whose frames pass no other rule. The text needs `$self`, the namespace's own address: no
 * frame may carry another's. Needs Linux 5.16 or newer.
 */
export function frameRules(input: RulesInput): string {
  const { closed, opened } = closedOf(input);
  const lines = [
    'arp saddr ip $self accept',
    NEIGHBOURS,
    'meta protocol ip ip saddr != $self drop',
    ...byVersion(input.nameServers).map(
      ([family, list]) => `${family} daddr { ${list.join(', ')} } meta l4proto { tcp, udp } th dport 53 accept`,
    ),
    ...(opened.length > 0 ? ['ip daddr @opened4 accept', 'ip6 daddr @opened6 accept'] : []),
    'ip daddr @closed4 drop',
    'ip6 daddr @closed6 drop',
    'meta protocol { ip, ip6 } accept',
  ];
  return [
    'table netdev longshore {',
    ...sets('closed', closed),
    ...(opened.length > 0 ? sets('opened', opened.map(asRange)) : []),
    '  chain out {',
    '    type filter hook egress device "eth0" priority 0; policy drop;',
    ...lines.map((line) => `    ${line}`),
    '  }',
    '}',
    '',
  ].join('\n');
}

/** Tables of a namespace's filter, as `nft` names them; builds have both. */
export type FilterTable = 'inet' | 'netdev';

/**
 * A transaction of `nft -f` that replaces the closed ranges of a filter in place, for addresses that this machine got
 * after the filter was set. An allow-list stays as it is.
 */
export function closedUpdate(input: RulesInput, tables: readonly FilterTable[]): string {
  const { closed } = closedOf(input);
  const lines = tables.flatMap((table) =>
    ([4, 6] as const).flatMap((version) => {
      const set = `${table} longshore closed${version}`;
      const list = ofVersion(closed, version);
      return [`flush set ${set}`, ...(list.length === 0 ? [] : [`add element ${set} { ${list.join(', ')} }`])];
    }),
  );
  return `${lines.join('\n')}\n`;
}

/** Ranges that are closed to every container, own addresses among them, and own addresses that are open. */
function closedOf(input: RulesInput): {
  readonly closed: readonly string[];
  readonly own: readonly string[];
  readonly opened: readonly string[];
} {
  const { ownAddresses, bridgeRanges, closedRanges } = input;
  const open = blockListOf(input.openAddresses);
  const metadata = blockListOf(METADATA);
  const opened = ownAddresses.filter((address) => isIn(open, address) && !isIn(metadata, address));
  const own = ownAddresses.filter((address) => !opened.includes(address));
  const closed = [...METADATA, ...EVERYBODY, ...bridgeRanges, ...closedRanges, ...own.map(asRange)];
  return { closed, own, opened };
}

/** Ranges that the engine must not dial for a tenant: it runs in the host's network, where loopback is this machine. */
export const closedToPulls = ({
  ownAddresses,
  bridgeRanges,
  closedRanges,
}: Pick<RulesInput, 'ownAddresses' | 'bridgeRanges' | 'closedRanges'>): readonly string[] => [
  ...METADATA,
  ...EVERYBODY,
  ...THIS_HOST,
  ...bridgeRanges,
  ...closedRanges,
  ...ownAddresses,
];

function sets(name: string, ranges: readonly string[]): string[] {
  const of = (version: 4 | 6): string => {
    const list = ofVersion(ranges, version);
    const elements = list.length === 0 ? '' : ` elements = { ${list.join(', ')} };`;
    return `  set ${name}${version} { type ipv${version}_addr; flags interval; auto-merge;${elements} }`;
  };
  return [of(4), of(6)];
}

const ofVersion = (ranges: readonly string[], version: 4 | 6): readonly string[] =>
  ranges.filter((range) => isIP(range.split('/')[0] ?? '') === version);

const asRange = (address: string): string => `${address}/${isIP(address) === 4 ? 32 : 128}`;

function byVersion(addresses: readonly string[]): (readonly ['ip' | 'ip6', readonly string[]])[] {
  const v4 = addresses.filter((address) => isIP(address) === 4);
  const v6 = addresses.filter((address) => isIP(address) === 6);
  return [...(v4.length > 0 ? [['ip', v4] as const] : []), ...(v6.length > 0 ? [['ip6', v6] as const] : [])];
}

function blockListOf(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) {
    const [address = '', bits] = range.split('/');
    const version = isIP(address);
    if (version === 0) continue;
    const family = version === 4 ? 'ipv4' : 'ipv6';
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return list;
}

function isIn(list: BlockList, address: string): boolean {
  const version = isIP(address);
  return version !== 0 && list.check(address, version === 4 ? 'ipv4' : 'ipv6');
}
