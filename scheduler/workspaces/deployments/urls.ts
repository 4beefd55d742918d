// Invoke URLs: the two forms of each, and the host label of a
// deployment. Pure. Source: decisions 0008, 0092 (the label).
import { createHmac } from 'node:crypto';
import { isIP } from 'node:net';
import { kindOf } from '#shared/domain/status.ts';
import { isSupervised } from './kinds.ts';

export interface UrlSettings {
  /** `LONGSHORE_INVOKE_DOMAIN`; null: path form unless asked for, under `localhost` where the base is this host. */
  readonly invokeDomain: string | null;
}

/** Parts of a URL, besides the base. */
export interface UrlTarget {
  readonly stubId: string;
  readonly stubType: string;
  /** Whether callers need no token. */
  readonly public: boolean;
  /** Port of a pod, or a placeholder where it has none or several; absent: not a pod. */
  readonly port?: string;
  /** The deployment; null: the stub itself. */
  readonly deployment: { readonly name: string; readonly version: number; readonly subdomain: string } | null;
}

/** Longest name in a label: with a dash, 16 characters of a hash and `-v123456` the label has 63 characters. */
const MAX_SUBDOMAIN_NAME = 38;
/** Characters of a port in the label of a pod: `-65535`. */
const PORT_CHARACTERS = 6;

/** Reduces a name to letters and digits, with one dash for everything else; empty when nothing is left. */
export function sanitiseName(name: string): string {
  return name
    .normalize('NFKD')
    .replace(/[^A-Za-z0-9]+/g, '-')
    .slice(0, MAX_SUBDOMAIN_NAME)
    .replace(/^-+|-+$/g, '')
    .toLowerCase();
}

/**
 * `hello-1a2b3c4d5e6f7081`: 64 bits that only the installation's key tells, so a label is one name's for ever.
 * @param key - the same in every replica and for as long as the installation lives
 */
export function subdomainOf(
  key: Uint8Array,
  of: { readonly workspaceId: string; readonly name: string; readonly stubType: string },
): string {
  const text = JSON.stringify([of.workspaceId, of.stubType, of.name]);
  const digest = createHmac('sha256', key).update(text).digest('hex').slice(0, 16);
  const most = isSupervised(kindOf(of.stubType)) ? MAX_SUBDOMAIN_NAME - PORT_CHARACTERS : MAX_SUBDOMAIN_NAME;
  return `${sanitiseName(of.name).slice(0, most).replace(/-+$/, '')}-${digest}`;
}

/** Placeholder that clients replace by a port. */
const PORT_PLACE = '<PORT>';
/** Placeholder for a container of a sandbox, whose ports are those of one container. */
const CONTAINER_PLACE = '<CONTAINER_ID>';

/** The port in the URLs of kinds that have one. */
export function portOf(stubType: string, ports: readonly number[]): string | undefined {
  if (!isSupervised(kindOf(stubType))) return undefined;
  return ports.length === 1 ? String(ports[0]) : PORT_PLACE;
}

/** @param base - without a trailing slash */
export function pathUrl(base: string, target: UrlTarget): string {
  const kind = kindOf(target.stubType);
  const port = target.port === undefined ? '' : `/${target.port}`;
  if (kind === 'sandbox') return `${base}/sandbox/container/${target.stubId}/${CONTAINER_PLACE}${port}`;
  const isPublicPod = target.public && target.port !== undefined;
  if (target.public && (target.deployment !== null || isPublicPod)) {
    return `${base}/${kind}/public/${target.stubId}${port}`;
  }
  if (target.deployment === null) return `${base}/${kind}/id/${target.stubId}${port}`;
  return `${base}/${kind}/${encodeURIComponent(target.deployment.name)}/v${target.deployment.version}${port}`;
}

export function hostUrl(base: string, target: UrlTarget, settings: UrlSettings): string {
  const url = new URL(base);
  // No host name can lie below an address.
  const isNameless = isIP(url.hostname.replace(/^\[|\]$/g, '')) !== 0 && !isLoopbackName(url.hostname);
  if (settings.invokeDomain === null && isNameless) return pathUrl(base, target);
  const domain = settings.invokeDomain ?? (isLoopbackName(url.hostname) ? 'localhost' : url.hostname);
  const own = kindOf(target.stubType) === 'sandbox' ? CONTAINER_PLACE : target.stubId;
  const label = target.deployment === null ? own : `${target.deployment.subdomain}-v${target.deployment.version}`;
  const port = target.port === undefined ? '' : `-${target.port}`;
  return `${url.protocol}//${label}${port}.${domain}${url.port === '' ? '' : `:${url.port}`}`;
}

/**
 * The URL of a deployment's name: it reaches the version that serves, and stays when that changes. Callers of a public
 * deployment need no token there.
 * @param withHost - the host form also where it is not the installation's own
 */
export function nameUrl(
  base: string,
  target: UrlTarget,
  { workspaceId, withHost }: { readonly workspaceId: string; readonly withHost: boolean },
  settings: UrlSettings,
): string {
  const { deployment } = target;
  if (deployment === null) return invokeUrl(base, target, settings);
  if (withHost || settings.invokeDomain !== null) {
    const start = `${new URL(base).protocol}//${deployment.subdomain}`;
    const versioned = `${start}-v${deployment.version}`;
    const whole = hostUrl(base, target, settings);
    // Outside of the installation's own domain a label without a mark may be the name of any machine.
    const mark = settings.invokeDomain === null ? '-latest' : '';
    if (whole.startsWith(versioned)) return `${start}${mark}${whole.slice(versioned.length)}`;
  }
  const port = target.port === undefined ? '' : `/${target.port}`;
  const owner = target.public ? `/public/${workspaceId}` : '';
  return `${base}/${kindOf(target.stubType)}${owner}/${encodeURIComponent(deployment.name)}${port}`;
}

/** Whether a browser that uses that name is on this machine. */
export const isLoopbackName = (host: string): boolean =>
  host === 'localhost' || host.startsWith('127.') || host === '[::1]';

/**
 * The address of a port of one container, in the default form of the installation.
 * @param base - without a trailing slash
 */
export function containerUrl(
  base: string,
  { stubId, containerId }: { readonly stubId: string; readonly containerId: string },
  port: number,
  { invokeDomain }: UrlSettings,
): string {
  if (invokeDomain === null) return `${base}/sandbox/container/${stubId}/${containerId}/${port}`;
  const { protocol, port: listening } = new URL(base);
  return `${protocol}//${containerId}-${port}.${invokeDomain}${listening === '' ? '' : `:${listening}`}`;
}

/** `name`, `name-host`: that of the deployment's name, of any version. */
export type UrlForm = 'host' | 'path' | 'name' | 'name-host' | '';
const FORMS: ReadonlySet<string> = new Set(['host', '', 'name', 'name-host']);

/** The form that a caller asked for; empty: the default. Unknown texts mean the path form. */
export const urlFormOf = (text: string): UrlForm => (FORMS.has(text) ? (text as UrlForm) : 'path');

/** The deployment's URL in its default form: host where the operator set a wildcard domain, else path. */
export function invokeUrl(base: string, target: UrlTarget, settings: UrlSettings, form: UrlForm = ''): string {
  const host = form === 'host' || (form === '' && settings.invokeDomain !== null);
  return host ? hostUrl(base, target, settings) : pathUrl(base, target);
}
