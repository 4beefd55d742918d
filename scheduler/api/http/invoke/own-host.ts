// Pages of applications in a browser: in the path form all share the scheduler's origin, where they are sandboxed. So a
// browser that navigates there is led to the host form, with the same path, method and token. Where there is no host
// form, it gets a page that says why, once. A cookie remembers that, because links of a sandboxed page do not say where
// they are. Programs are left alone: they send no `Sec-Fetch-Mode`. Source: decision 0301.
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Target } from '../../../domain/stub-config.ts';
import { isLoopbackName } from '../../../workspaces/deployments/urls.ts';
import type { UrlSettings } from '../../../workspaces/deployments/urls.ts';
import { isProxied } from '../auth.ts';
import { closeUnread } from '../polite-close.ts';
import { cookieOf, splitTarget } from '../streams/head.ts';
import { cookiePathOf } from '../streams/tenant-answers.ts';
import { versionParam } from './find-target.ts';
import { namePart } from './path-form.ts';
import { readHostLabel } from './host-form.ts';
import { TOLD_COOKIE } from './own-cookies.ts';

export interface HostParts extends UrlSettings {
  /** `LONGSHORE_EXTERNAL_URL` is set: hosts below `localhost` are then for nobody else. */
  readonly isExternal: boolean;
  /** Start of the URLs that are given to the sender of a request. */
  readonly baseUrlOf: (request: FastifyRequest) => string;
}

/** Facts that a path names: the part in front of the application's own path, and the port of a pod or sandbox. */
export interface PathNames {
  readonly rootPath: string;
  readonly port?: number | undefined;
  /** The only container that is meant; absent: any of the stub. */
  readonly containerId?: string;
}

const isNavigation = ({ headers }: FastifyRequest): boolean => headers['sec-fetch-mode'] === 'navigate';

/** Leads a browser away from the path form, or tells it why not. @returns whether the request was answered */
export function leadToOwnHost(
  target: Target,
  names: PathNames,
  request: FastifyRequest,
  reply: FastifyReply,
  parts: HostParts,
): boolean {
  if (!isNavigation(request)) return false;
  const label = labelOf(target, names);
  const origin = label === undefined ? undefined : originOf(label, request, parts);
  if (origin === undefined && wasTold(request)) return false;
  closeUnread(request, reply);
  void reply.headers({ 'cache-control': 'no-store', vary: 'sec-fetch-mode, cookie' });
  if (origin === undefined) {
    const path = cookiePathOf(names.rootPath);
    void reply.header('set-cookie', `${TOLD_COOKIE}=1; Path=${path}; HttpOnly; SameSite=Lax`);
    void reply.code(403).headers(PAGE_HEADERS).send(PAGE);
    return true;
  }
  const { path, mark, query } = splitTarget(request.originalUrl);
  const own = path.slice(names.rootPath.length);
  void reply
    .code(307)
    .headers({ 'referrer-policy': 'no-referrer', location: `${origin}${own === '' ? '/' : own}${mark}${query}` })
    .send();
  return true;
}

/** The host label that means the same; undefined: there is none. */
function labelOf({ stubId, subdomain }: Target, { rootPath, port, containerId }: PathNames): string | undefined {
  const behind = port === undefined ? '' : `-${port}`;
  const label = `${containerId ?? deploymentLabel(rootPath, { stubId, subdomain }) ?? stubId}${behind}`;
  return readHostLabel(label) === undefined ? undefined : label;
}

/** The label of a path with a deployment's name; undefined: the label of the stub is to be used. */
function deploymentLabel(
  rootPath: string,
  { stubId, subdomain }: Pick<Target, 'stubId' | 'subdomain'>,
): string | undefined {
  const segments = rootPath.split('/');
  const name = namePart(segments, stubId);
  if (subdomain === null || name === undefined) return undefined;
  const version = segments[name + 1] ?? '';
  return `${subdomain}-${versionParam({ version }) === undefined ? 'latest' : version}`;
}

/** The origin of a label, where browsers that use this installation find it; undefined: there is none. */
function originOf(label: string, request: FastifyRequest, parts: HostParts): string | undefined {
  const { protocol, hostname, port } = new URL(parts.baseUrlOf(request));
  const domain = parts.invokeDomain ?? (isOnThisMachine(hostname, request, parts) ? 'localhost' : undefined);
  return domain === undefined ? undefined : `${protocol}//${label}.${domain}${port === '' ? '' : `:${port}`}`;
}

/**
 * Whether the browser reaches this installation by a name of its own machine, below which it finds every other name. A
 * proxy in front may have written the name, for a browser that is elsewhere; browsers do not speak HTTP/1.0.
 */
function isOnThisMachine(hostname: string, request: FastifyRequest, { isExternal }: HostParts): boolean {
  if (!isLoopbackName(hostname) && !hostname.endsWith('.localhost')) return false;
  return isExternal || (!isProxied(request) && request.raw.httpVersion !== '1.0');
}

/** Whether the browser has had the page below. Where it keeps no cookies, such as in a frame, its link counts. */
const wasTold = ({ headers }: FastifyRequest): boolean =>
  headers['sec-fetch-site'] === 'same-origin' || cookieOf(headers.cookie, TOLD_COOKIE) !== undefined;

const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': "default-src 'none'; base-uri 'none'; form-action 'none'",
  'x-content-type-options': 'nosniff',
};

const PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>This application has no host of its own</title>
</head>
<body>
<h1>This application has no host of its own</h1>
<p>Its page shares the address of the Longshore installation with all other applications, because no wildcard DNS name
leads to it. So a browser may open the page only without cookies, storage, workers and calls to its own address.</p>
<p>The operator gives every application a host of its own by LONGSHORE_INVOKE_DOMAIN. On the machine of the scheduler,
hosts below <code>localhost</code> work without that.</p>
<p><a href="">Open the page without them</a></p>
</body>
</html>
`;
