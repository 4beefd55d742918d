// Ports of Longshore's own services and stores, to which no message of a workspace goes in an opened network. Pure.
import { splitAddress } from '#shared/address.ts';

/** Settings that name them. */
export interface PortSettings {
  readonly LONGSHORE_HTTP_ADDRESS: string;
  readonly LONGSHORE_AGENT_ADDRESS: string;
  readonly LONGSHORE_GRPC_ADDRESS?: string;
  readonly DATABASE_URL?: string;
  readonly REDIS_URL?: string;
  readonly LONGSHORE_REGISTRY?: string;
  readonly LONGSHORE_OBJECTS_ENDPOINT?: string;
  readonly LONGSHORE_EXPORT_OTLP?: string;
}

/** Port of the agent's metrics, which trust this machine; agents elsewhere have it, too. */
const AGENT_METRICS_PORT = 9464;
/** Published clients call it; schedulers elsewhere have it, too. */
const GRPC_PORT = 1993;
const SENTINEL_PORT = 26_379;

/** Ports of our own services and stores. */
export function ownPorts(settings: PortSettings): ReadonlySet<number> {
  const { LONGSHORE_HTTP_ADDRESS: http, LONGSHORE_AGENT_ADDRESS: agents, LONGSHORE_GRPC_ADDRESS: grpc } = settings;
  const named = [http, agents, ...(grpc === undefined || grpc === 'none' ? [] : [grpc])];
  const addresses = named.map((address) => splitAddress(address).port);
  const others = [settings.LONGSHORE_REGISTRY, settings.LONGSHORE_OBJECTS_ENDPOINT, settings.LONGSHORE_EXPORT_OTLP];
  return new Set([
    AGENT_METRICS_PORT,
    GRPC_PORT,
    SENTINEL_PORT,
    ...addresses,
    ...portsIn(settings.DATABASE_URL, 5432),
    ...portsIn(settings.REDIS_URL, 6379),
    ...others.flatMap((url) =>
      /^https?:/i.test(url ?? '') ? portsIn(url, url?.startsWith('https') ? 443 : 80).slice(1) : [],
    ),
  ]);
}

/** Every port that a URL of a store names, also of several hosts; its usual one where it names none. */
function portsIn(url: string | undefined, usual: number): readonly number[] {
  const hosts = /^[a-z+]+:\/\/(?:[^@/]*@)?([^/?]*)/i.exec(url ?? '')?.[1] ?? '';
  const named = hosts.split(',').map((host) => Number(/:(\d+)$/.exec(host)?.[1] ?? usual));
  return [usual, ...named];
}
