// The lines behind a deploy that say how to call it.
import { shellWord } from '#shared/shell-word.ts';
import type { Deployed } from '../deploy/deploy.ts';

/** Ways to call what was deployed. */
export function callLines(
  deployed: Pick<
    Deployed,
    'hostUrl' | 'isPublic' | 'isRealtime' | 'kind' | 'name' | 'ports' | 'requiredInputs' | 'url'
  >,
  program: string,
): string[] {
  const { hostUrl, isPublic, kind, name, url } = deployed;
  const token = isPublic ? '' : ` -H "Authorization: Bearer $(${program} context token)"`;
  if (kind === 'asgi') {
    const webSockets = `WebSockets: ${url.replace(/^http/, 'ws')}`;
    if (deployed.isRealtime === true)
      return [
        isPublic
          ? webSockets
          : `${webSockets}?auth_token=TOKEN, or with the header "Authorization: Bearer TOKEN"; \`${program} token create --scope invoke\` prints TOKEN`,
      ];
    const lines = [`curl ${shellWord(url)}${token}`, isPublic ? webSockets : `${webSockets}, with the same header`];
    return [...browserLines(hostUrl, isPublic, program), ...lines];
  }
  if (kind === 'pod') {
    const { ports } = deployed;
    if (ports.length === 0) return ['it has no ports; `ports=[…]` of the Pod names them'];
    // Pages of many programs work on a host of their own alone, so that one comes first.
    return ports.flatMap((port) => [
      ...browserLines(hostUrl === null ? null : atPort(hostUrl, port), isPublic, program),
      `curl ${shellWord(`${atPort(url, port)}/`)}${token}`,
    ]);
  }
  const input = exampleInput(deployed.requiredInputs ?? []);
  const ofKind = kind === 'endpoint' ? '' : ` --kind ${kind}`;
  return [
    `curl -X POST ${shellWord(url)}${token} -d '${input}'`,
    `${program} invoke ${shellWord(name)}${ofKind}${input === '{}' ? '' : ` --data '${input}'`}`,
  ];
}

/** The address of one port: that of several has a place for it. */
const atPort = (url: string, port: number): string => url.replace('<PORT>', String(port));

function browserLines(hostUrl: string | null, isPublic: boolean, program: string): string[] {
  // Below an address there are no names, and the URL is the other one.
  if (hostUrl === null || new URL(hostUrl).pathname !== '/') return [];
  const page = `a browser: ${hostUrl}/`;
  return [
    isPublic ? page : `${page}?auth_token=TOKEN, where TOKEN is what \`${program} token create --scope invoke\` prints`,
  ];
}

/** Example JSON with a gap for each required input; Python names need no escaping. */
export const exampleInput = (required: readonly string[]): string =>
  `{${required.map((name) => `"${name}": …`).join(', ')}}`;
