// Commands that a person or a program runs on a host to install, join or upgrade an agent. The command line prints
// them, and the scheduler gives them to providers. Pure. Must stay true: no process list shows a token.

/** Where a host gets its agent, and where the agent dials. */
export interface JoinPlace {
  /** Base URL of the installation's HTTP. */
  readonly baseUrl: string;
  /** Address for agents, `grpcs://host:port` or `host:port`. */
  readonly upstream: string;
  /** Release channel; empty: the scheduler's default. */
  readonly channel: string;
  /** sha256 (hex) of the installer's script as the scheduler serves it; null: it gives out no release. */
  readonly scriptSha256: string | null;
}

/** Path of the installer's script. */
export const installerPath = (channel: string): string =>
  `/install/agent${channel === '' ? '' : `?channel=${encodeURIComponent(channel)}`}`;

/** host:port of `grpcs://host:port`. */
export const hostOf = (url: string): string => url.replace(/^[a-z]+:\/\//, '').replace(/\/+$/, '');

const LOOPBACK = /^(127\.|localhost$|\[::1\]$)/;

/** Origin by which a host reaches the installation. Loopback gives way to the host that serves the agents' port. */
export function originFor({ baseUrl, upstream }: Pick<JoinPlace, 'baseUrl' | 'upstream'>): string {
  const base = new URL(baseUrl);
  if (LOOPBACK.test(base.hostname)) base.hostname = new URL(`http://${hostOf(upstream)}`).hostname;
  return base.origin;
}

/**
 * The command that installs an agent and joins with the token. It checks the script against its hash; the script checks
 * the release. The token and the shell's proxy settings go through a pipe.
 * @returns the command that runs an agent from an installation of the host's own, where there is no release
 */
export function joinLine(place: JoinPlace, token: string): string {
  if (place.scriptSha256 === null) return agentLine(place.upstream, token);
  const from = originFor(place);
  // sudo drops the variables that name proxies; as arguments, their passwords would appear in process lists.
  const given = `{ echo '${token}'; env | grep -iE '^(https?|no)_proxy='; }`;
  return `${fetched(place, from, place.scriptSha256)} && ${given} | sudo sh "$f" install --from '${from}' --scheduler '${hostOf(place.upstream)}'`;
}

/** The command that brings the agent of a joined machine to the present release. */
export const upgradeLine = (place: JoinPlace & { readonly scriptSha256: string }): string =>
  `${fetched(place, originFor(place), place.scriptSha256)} && sudo sh "$f" install --from '${originFor(place)}' </dev/null`;

const fetched = ({ channel }: JoinPlace, from: string, digest: string): string =>
  `f=$(mktemp) && curl -fsSL '${from}${installerPath(channel)}' -o "$f" && echo "${digest}  $f" | sha256sum -c --quiet -`;

/**
 * The command that runs a machine's agent. The URL's scheme says whether the link uses TLS, which the token decides.
 */
export const agentLine = (upstream: string, token: string): string =>
  `LONGSHORE_SCHEDULER_ADDRESS=${hostOf(upstream)} LONGSHORE_JOIN_TOKEN=${token} longshore agent`;
