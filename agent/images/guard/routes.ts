/**
 * How the hosts of a registry are reached, as the engine would reach them: by its proxy, its trusted authorities and
 * its list of insecure registries. Must stay true: no host is reached at a closed address.
 */
import { setMaxListeners } from 'node:events';
import { BlockList, isIP } from 'node:net';
import type { Socket } from 'node:net';
import type { SecureContext } from 'node:tls';
import { isAgentsImageName } from '#shared/domain/guarded-images.ts';
import { imageProblem, registryOf } from '#shared/domain/image-reference.ts';
import { AppError } from '#shared/errors.ts';
import type { RegistrySettings } from '../../containers/engine/info.ts';
import type { RegistryAuth } from '../../containers/runtime.ts';
import { addressOf, routeTo } from '../../proxy.ts';
import type { Proxy, ProxySettings } from '../../proxy.ts';
import { hostOf } from '../registry-guard.ts';
import type { RegistryGuard } from '../registry-guard.ts';
import { RegistryClient } from './client.ts';
import type { Route, Target } from './requests.ts';

/** How long the addresses of a name are used within one pull. */
const ROUTE_MS = 60_000;

export interface RoutesParts {
  readonly guard: Pick<RegistryGuard, 'addressesOf'>;
  readonly settings: () => Promise<RegistrySettings>;
  /** The agent's own proxies, because the engine shows its own without their password. */
  readonly proxies: ProxySettings;
  readonly tunnel: (proxy: Proxy, address: string) => Promise<Socket>;
  readonly trustFor: (registry: string) => Promise<SecureContext>;
}

export interface Asking {
  readonly auth: RegistryAuth | undefined;
  readonly silenceMs: number;
  readonly signal: AbortSignal;
}

export class Routes {
  readonly #parts: RoutesParts;

  constructor(parts: RoutesParts) {
    this.#parts = parts;
  }

  /** A client for one pull, or one question, about an image. */
  async clientOf(reference: string, asking: Asking): Promise<RegistryClient> {
    const { settings, trustFor } = this.#parts;
    if (imageProblem(reference) !== undefined || isAgentsImageName(reference))
      throw new Error('invalid reference format');
    const registry = registryOf(reference);
    const [{ insecure, proxies }, trust] = await Promise.all([settings(), trustFor(registry)]);
    const known = new Map<string, { readonly route: Promise<Route>; readonly atMs: number }>();
    // Each request of a pull listens to the signal.
    setMaxListeners(0, asking.signal);
    return new RegistryClient({
      ...asking,
      reference,
      trust,
      isInsecure: await this.#isInsecure(registry, insecure),
      routeTo: (to, ledBy) => {
        const key = `${to.host} ${to.port} ${to.isTls} ${ledBy ?? 'itself'}`;
        const before = known.get(key);
        if (before !== undefined && performance.now() - before.atMs < ROUTE_MS) return before.route;
        const route = this.#routeTo(to, { registry, ledBy }, proxies);
        known.set(key, { route, atMs: performance.now() });
        return route;
      },
    });
  }

  async #routeTo(
    { host, port, isTls }: Target,
    { registry, ledBy }: { readonly registry: string; readonly ledBy: string | undefined },
    proxies: RegistrySettings['proxies'],
  ): Promise<Route> {
    const { guard, tunnel } = this.#parts;
    const address = `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
    const proxy = this.#proxyFor(address, isTls, proxies);
    if (proxy === undefined) return { addresses: await guard.addressesOf(host, registry, ledBy) };
    // A name that is not known here may be known to the proxy, which dials no address of this machine's network then.
    await guard.addressesOf(host, registry, ledBy).catch((error: unknown) => {
      if (error instanceof AppError) throw error;
    });
    return { addresses: [], tunnel: () => tunnel(proxy, address) };
  }

  #proxyFor(address: string, isTls: boolean, proxies: RegistrySettings['proxies']): Proxy | undefined {
    const { HTTP_PROXY, HTTPS_PROXY, NO_PROXY } = proxies;
    const own = isTls ? HTTPS_PROXY : HTTP_PROXY;
    if (own === '') return undefined;
    const { proxy } = routeTo(address, { HTTPS_PROXY: own, NO_PROXY });
    if (proxy?.authorization === undefined) return proxy;
    // The engine masks the password of its proxy.
    const mine = routeTo(address, { ...this.#parts.proxies, NO_PROXY }).proxy;
    if (mine !== undefined && addressOf(mine) === addressOf(proxy)) return mine;
    throw new AppError(
      'registry_unreachable',
      `the engine's proxy ${proxy.shown} asks for a password, which the agent does not have: set HTTPS_PROXY of the agent to the same proxy`,
    );
  }

  /** As the engine decides it: by the name, or by an address of the name. */
  async #isInsecure(registry: string, insecure: readonly string[]): Promise<boolean> {
    if (insecure.includes(registry)) return true;
    const ranges = insecure.filter((one) => isIP(one.split('/')[0] ?? '') !== 0 && one.includes('/'));
    if (ranges.length === 0) return false;
    const list = new BlockList();
    for (const range of ranges) {
      const [address = '', bits] = range.split('/');
      list.addSubnet(address, Number(bits), isIP(address) === 4 ? 'ipv4' : 'ipv6');
    }
    const addresses = await this.#parts.guard.addressesOf(hostOf(registry), registry).catch(() => []);
    return addresses.some(({ address, family }) => list.check(address, family === 4 ? 'ipv4' : 'ipv6'));
  }
}
