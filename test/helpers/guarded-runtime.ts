// The runtime of an agent whose operator named no registry, on an engine in another network namespace.
import type { DockerRuntime } from '#agent/containers/engine/docker.ts';
import type { ContainerRuntime } from '#agent/containers/runtime.ts';
import { withGuardedPulls } from '#agent/images/guard/guarded-pulls.ts';
import type { PullProxy } from '#agent/images/guard/pull-proxy.ts';
import { trustFor } from '#agent/images/guard/trust.ts';
import { RegistryGuard } from '#agent/images/registry-guard.ts';

/** @param proxy - listens where the engine reaches it */
export function guardedRuntime(engine: DockerRuntime, proxy: PullProxy): ContainerRuntime {
  const guard = new RegistryGuard({
    opened: [],
    closedRanges: [],
    ownAddresses: () => [],
    bridgeRanges: () => Promise.resolve([]),
  });
  return withGuardedPulls<ContainerRuntime>(engine, {
    guard,
    proxy: () => proxy,
    settings: engine.registrySettings,
    proxies: {},
    tunnel: () => Promise.reject(new Error('there is no proxy')),
    trustFor,
  });
}
