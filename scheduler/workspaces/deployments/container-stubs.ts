// Stubs that a container may have made with its own credential: only in its own app, and with nothing that its own stub
// lacks. Pure. Source: interface, gateway 2.2; decision 0058.
import type { GetOrCreateStubRequest } from '#shared/api/stubs.ts';
import { basePythonOf } from '#shared/domain/built-images.ts';
import { JsonText } from '#shared/json-text.ts';
import { poolNameOf } from '../../domain/pools.ts';
import type { StubConfig } from '../../domain/stub-config.ts';
import { accessOf, isBucket, readBucket } from './buckets.ts';

export interface OwnStub {
  readonly appName: string;
  readonly config: StubConfig;
}

export type Limited =
  | { readonly kind: 'request'; readonly request: GetOrCreateStubRequest }
  /** Refusal; `why` names the field. */
  | { readonly kind: 'refused'; readonly why: string };

const refused = (why: string): Limited => ({ kind: 'refused', why });

/**
 * Limits a request to the container's own stub. An absent field
 * takes the own stub's value wherever its default would allow more.
 */
export function withinOwnStub(own: OwnStub, request: GetOrCreateStubRequest): Limited {
  const { config } = own;
  if (request.appName !== '' && request.appName !== own.appName)
    return refused(`appName must be ${JSON.stringify(own.appName)}, the app of this container`);
  const secret = request.secrets.find(({ name }) => !config.secrets.includes(name));
  if (secret !== undefined) return refused(`secrets: ${quoted(secret.name)} is not one of this container's`);
  const mounts = new Set(config.volumes.map(accessOf));
  for (const volume of request.volumes) {
    const bucket = isBucket(volume) ? readBucket(volume) : undefined;
    if (typeof bucket === 'string') return refused(`volumes: ${bucket}`);
    const asked = { volumeId: volume.id.toLowerCase(), ...(bucket === undefined ? {} : { bucket }) };
    if (!mounts.has(accessOf(asked)))
      return refused(`volumes: ${quoted(bucket?.bucket ?? volume.id)} is not one of this container's`);
  }
  const ownPool = config.extra['pool'];
  const pool = poolNameOf({ pool: request.pool });
  if (pool !== '' && pool !== poolNameOf(config.extra)) return refused(`pool: ${quoted(pool)} is not this container's`);
  if (request.authorized === false && config.authorized)
    return refused('authorized must be true, as it is of this container’s stub');
  if (hasLimitedNetwork(config)) {
    // Each of these fields would make the platform send or request something outside on the container's behalf.
    if (request.callbackUrl !== '' && request.callbackUrl !== config.callbackUrl)
      return refused('callbackUrl must be that of this container’s stub, whose network is limited');
    if (request.imageId !== '' && request.imageId !== config.imageId && basePythonOf(request.imageId) === undefined)
      return refused('imageId must be that of this container’s stub, whose network is limited');
  }
  return {
    kind: 'request',
    request: {
      ...request,
      appName: own.appName,
      ...(pool === '' && ownPool instanceof JsonText ? { pool: ownPool } : {}),
      ...network(config, request),
    },
  };
}

/** Whether there are addresses that its containers must not reach. */
export const hasLimitedNetwork = (config: Pick<StubConfig, 'blockNetwork' | 'allowList'>): boolean =>
  config.blockNetwork || config.allowList.length > 0;

/** The network settings, with no access that the own stub lacks. */
function network(
  own: Pick<StubConfig, 'blockNetwork' | 'allowList'>,
  asked: Pick<GetOrCreateStubRequest, 'blockNetwork' | 'allowList'>,
): Partial<Pick<GetOrCreateStubRequest, 'blockNetwork' | 'allowList'>> {
  if (own.blockNetwork) return { blockNetwork: true, allowList: [] };
  if (own.allowList.length === 0 || asked.blockNetwork) return {};
  const within = asked.allowList.length > 0 && asked.allowList.every((range) => own.allowList.includes(range));
  return within ? {} : { allowList: [...own.allowList] };
}

const quoted = (text: string): string => JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);

export interface StubRights {
  readonly appId: string | null;
  readonly config: StubConfig;
}

/**
 * Whether code of the writer's containers may run in the reader's: only in the same app, and where the reader has no
 * secret, volume, pool or network that the writer lacks. A pickled value is such code.
 */
export function mayTakeCodeOf(reader: StubRights, writer: StubRights): boolean {
  if (reader.appId === null || reader.appId !== writer.appId) return false;
  const { config: own } = writer;
  const { config: asked } = reader;
  const mounts = new Set(own.volumes.map(accessOf));
  return (
    asked.secrets.every((name) => own.secrets.includes(name)) &&
    asked.volumes.every((volume) => mounts.has(accessOf(volume))) &&
    poolNameOf(asked.extra) === poolNameOf(own.extra) &&
    (!hasLimitedNetwork(own) || isWithin(asked, own))
  );
}

type Network = Pick<StubConfig, 'blockNetwork' | 'allowList'>;

/** Whether the first reaches no address that the second, which is limited, cannot. */
const isWithin = (asked: Network, own: Network): boolean =>
  asked.blockNetwork ||
  (!own.blockNetwork && asked.allowList.length > 0 && asked.allowList.every((range) => own.allowList.includes(range)));
