// The host's packet rules, read by a container of ours in the host's network: the installed service has no capability.
import { helper } from '../containers/helpers.ts';
import { PAUSE_IMAGE, ensurePauseImage } from '../containers/pause-image.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import type { Rules } from './firewall.ts';
import { UNKNOWN_RULES } from './firewall.ts';

const DEADLINE_MS = 30_000;
/** Hosts of a cluster have rules for each of its services. */
const MOST_LINES = 50_000;
const LEGACY = '# legacy';
const TRANSLATION = '# translation';
const SCRIPT = `nft list chains || exit 1
echo '${LEGACY}'
[ ! -e /proc/net/ip_tables_names ] || while read -r table; do echo "$table"; done </proc/net/ip_tables_names
echo '${TRANSLATION}'
nft list chain ip nat POSTROUTING 2>/dev/null || true`;

/** @throws EngineError when no container of ours starts */
export async function rulesByContainer(
  runtime: ContainerRuntime,
  labels: Readonly<Record<string, string>>,
): Promise<Rules> {
  await ensurePauseImage(runtime);
  const lines: string[] = [];
  const spec = helper(PAUSE_IMAGE, ['sh', '-c', SCRIPT], [], labels);
  const code = await runtime.runOnce(
    { ...spec, network: 'host', capabilities: ['NET_ADMIN'], readOnlyRoot: true },
    DEADLINE_MS,
    (line) => lines.length < MOST_LINES && lines.push(line),
  );
  return code === 0 && lines.length < MOST_LINES ? rulesOf(lines) : UNKNOWN_RULES;
}

/** Rules in the formats of `FirewallFacts`. `nft` does not show those of the legacy iptables. Pure. */
export function rulesOf(lines: readonly string[]): Rules {
  const legacyAt = lines.indexOf(LEGACY);
  const translationAt = lines.indexOf(TRANSLATION);
  if (legacyAt < 0 || translationAt < 0) return UNKNOWN_RULES;
  const rules = lines.slice(translationAt + 1).flatMap((line) => {
    // The target of a rule that iptables made has no word here.
    const range = /\bip saddr (\d+\.\d+\.\d+\.\d+(?:\/\d+)?)(?=\s)/.exec(line)?.[1];
    return range === undefined ? [] : [`-A POSTROUTING -s ${range} -j MASQUERADE`];
  });
  const isLegacy = lines.slice(legacyAt + 1, translationAt).includes('nat');
  return {
    translation: isLegacy ? undefined : ['-P POSTROUTING ACCEPT', ...rules].join('\n'),
    chains: lines.slice(0, legacyAt).join('\n'),
  };
}
