// The host form of invoke URLs: `hello-1a2b3c4d5e6f7081-v3.example.org/` means the same as `/endpoint/hello/v3`. Before
// routing, a request whose first host label has the shape of one is given a path of its own, which invoke.ts serves.
// Every other host is routed as usual. A port of a pod or sandbox comes last in the label. Pure. Source: decision 0008.
import { isUuid } from '#shared/domain/ids.ts';
import { NOWHERE } from '../target-host.ts';
import { routable } from './routable.ts';

export type HostLabel = (
  | { readonly kind: 'stub'; readonly stubId: string }
  /** A deployment's version; `version` null: the newest. */
  | { readonly kind: 'deployment'; readonly subdomain: string; readonly version: number | null }
  /** A container of a sandbox or a pod. */
  | { readonly kind: 'container'; readonly containerId: string; readonly stubId: string }
) & {
  /** Port of a pod or sandbox; null: the label names none. */
  readonly port: number | null;
};

/** Base of paths that no URL from outside can name. */
export const HOST_BASE = '/~host';
/** The same, with any of its characters escaped: the router reads escapes. */
const HOST_BASE_ESCAPED = /^\/(?:~|%7e)(?:h|%68)(?:o|%6f)(?:s|%73)(?:t|%74)/i;

/** Paths of kinds that stream: the application has its own reading of escapes. */
const STREAMED = /^\/(?:asgi|pod|sandbox\/container)\//;

const DEPLOYMENT = /^([a-z0-9](?:[a-z0-9-]{0,36}[a-z0-9])?-[0-9a-f]{16})(?:-v([0-9]{1,9})|-(latest))?$/;

const CONTAINER = /^(?:pod|sandbox)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9a-f]{8}$/;
/** A port behind a label: hashes at the end of one are longer. */
const PORT = /^(.+)-([1-9][0-9]{0,4})$/;

/** Reads a host label by its shape; undefined: not a label of this platform. */
export function readHostLabel(label: string): HostLabel | undefined {
  const text = label.toLowerCase();
  const whole = readWithoutPort(text);
  if (whole !== undefined) return whole.kind === 'container' ? undefined : { ...whole, port: null };
  const [, rest = '', digits] = PORT.exec(text) ?? [];
  const found = digits === undefined ? undefined : readWithoutPort(rest);
  return found === undefined ? undefined : { ...found, port: Number(digits) };
}

function readWithoutPort(label: string) {
  if (isUuid(label)) return { kind: 'stub', stubId: label } as const;
  const [, stubId] = CONTAINER.exec(label) ?? [];
  if (stubId !== undefined) return { kind: 'container', containerId: label, stubId } as const;
  const [, subdomain, digits] = DEPLOYMENT.exec(label) ?? [];
  if (subdomain === undefined) return undefined;
  return { kind: 'deployment', subdomain, version: digits === undefined ? null : Number(digits) } as const;
}

/**
 * Makes the rewriter of hosts to paths.
 * @param domains - below them every label counts. Elsewhere only labels with a version
 * or a stub's id count, because a machine may happen to be called like a deployment
 * @returns a function that gives the URL to route by
 */
export function hostRewriter(domains: readonly string[]): (host: string | undefined, url: string) => string {
  const known = new Set(domains.map((domain) => domain.toLowerCase().replace(/:[0-9]+$/, '')));
  return (host, url) => {
    const label = host === undefined ? undefined : labelOf(host.toLowerCase(), known);
    if (label !== undefined) return `${HOST_BASE}/${label}${routable(url)}`;
    // Paths of host labels are reached by the host alone.
    if (HOST_BASE_ESCAPED.test(url)) return NOWHERE;
    return STREAMED.test(url) ? routable(url) : url;
  };
}

function labelOf(host: string, domains: ReadonlySet<string>): string | undefined {
  const dot = host.indexOf('.');
  if (dot < 1) return undefined;
  const label = host.slice(0, dot);
  const found = readHostLabel(label);
  if (found === undefined) return undefined;
  const domain = host.slice(dot + 1).replace(/:[0-9]+$/, '');
  const isExact = found.kind !== 'deployment' || found.version !== null;
  return isExact || domains.has(domain) ? label : undefined;
}
