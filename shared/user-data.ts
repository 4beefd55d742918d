// How a new host joins by a token: the line for a shell, and the same as user data of a cloud's instance. The command
// line prints it, and the scheduler gives it to providers. Pure.
import { hostOf, installerPath, joinLine, originFor } from './join-line.ts';
import type { JoinPlace } from './join-line.ts';

/** Kinds of user data that there are. */
export const USER_DATA_KINDS = ['cloud-init'] as const;

export interface JoinTexts {
  /** Line for a shell on the host, which may use sudo. */
  readonly joinLine: string;
  /** Document for cloud-init; it begins with `#cloud-config`. */
  readonly userData: string;
}

/** @param token - a join token or an enrolment token; both texts hold it */
export const joinTexts = (place: JoinPlace, token: string): JoinTexts => ({
  joinLine: joinLine(place, token),
  userData: userDataOf(place, token),
});

/** Directory in memory: neither the token nor the script is left on the disk. */
const PLACE = '/run/longshore-join';
const TRIES = 60;

/**
 * The document for cloud-init. Token and script are files that root alone reads, so that no process list shows the
 * token. Without a release, the image must have the agent already.
 */
export function userDataOf(place: JoinPlace, token: string): string {
  const script = place.scriptSha256 === null ? joinScript(place) : installScript(place, place.scriptSha256);
  return [
    '#cloud-config',
    'write_files:',
    ...fileOf(`${PLACE}/token`, `${token}\n`),
    ...fileOf(`${PLACE}/join.sh`, script),
    'runcmd:',
    `  - ["sh", "${PLACE}/join.sh"]`,
    '',
  ].join('\n');
}

/** A string of JSON is a string of YAML. */
const fileOf = (path: string, content: string): string[] => [
  `  - path: ${path}`,
  '    owner: root:root',
  '    permissions: "0600"',
  `    content: ${JSON.stringify(content)}`,
];

const AFTER = `ended=$?
rm -rf ${PLACE}
exit $ended
`;

const joinScript = ({ upstream }: JoinPlace): string =>
  `umask 077
LONGSHORE_JOIN_TOKEN_FILE=${PLACE}/token longshore-agent join --scheduler '${hostOf(upstream)}' </dev/null
${AFTER}`;

/** A host may be up before its network, or before the scheduler: the script is fetched for ten minutes. */
function installScript(place: JoinPlace, digest: string): string {
  const from = originFor(place);
  return `umask 077
f=${PLACE}/install-agent.sh
url='${from}${installerPath(place.channel)}'
get() {
  if command -v curl >/dev/null; then curl -fsSL --connect-timeout 10 -o "$f" "$url"; else wget -q --timeout=10 --tries=1 -O "$f" "$url"; fi
}
tries=0
until get && echo "${digest}  $f" | sha256sum -c --status -; do
  tries=$((tries + 1))
  if [ "$tries" -ge ${TRIES} ]; then echo "longshore: $url cannot be fetched, or is not the script that was promised" >&2; rm -rf ${PLACE}; exit 1; fi
  sleep 10
done
LONGSHORE_JOIN_TOKEN_FILE=${PLACE}/token sh "$f" install --from '${from}' --scheduler '${hostOf(place.upstream)}' </dev/null
${AFTER}`;
}
