// The configuration of the managed registry: where it listens, and its data in the place of the installation's objects.
// Pure.
import { join } from 'node:path';

export interface RegistrySettings {
  readonly LONGSHORE_DATA_DIR: string;
  readonly LONGSHORE_OBJECTS_BUCKET?: string;
  readonly LONGSHORE_OBJECTS_ENDPOINT?: string;
  readonly LONGSHORE_OBJECTS_REGION: string;
  readonly LONGSHORE_OBJECTS_PREFIX: string;
  readonly LONGSHORE_OBJECTS_ACCESS_KEY_ID?: string;
  readonly LONGSHORE_OBJECTS_SECRET_ACCESS_KEY?: string;
}

/**
 * Requests that a registry takes: all, or reads alone. Only beside the second one layers may be collected, because a
 * collection takes those of a push that is under way.
 */
export type RegistryMode = 'all' | 'reads';

/** Requests under way at the end of a registry get so long. Nothing waits for the end of one that takes reads alone. */
const DRAIN = { all: '20s', reads: '10m' } as const satisfies Readonly<Record<RegistryMode, string>>;

/** Directory of the registry's data, and of its configuration. */
export const registryDirectory = (dataDir: string): string => join(dataDir, 'registry');

/**
 * The reason why the managed registry does not listen at an address; undefined: it does. It asks for no credentials,
 * so only this host may reach it.
 */
export function addressProblem(address: string): string | undefined {
  const url = new URL(address);
  if (url.protocol === 'unix:') return undefined;
  const why = portProblem(url);
  // The origin has no password.
  return why === undefined
    ? undefined
    : `the managed registry does not listen at ${url.protocol}//${url.host}: ${why}. LONGSHORE_REGISTRY must name a socket (unix:///path) or a port of loopback (http://127.0.0.1:5000) where \`longshore registry serve\` or \`up --registry\` starts it`;
}

function portProblem({ protocol, username, password, hostname, port }: URL): string | undefined {
  if (protocol !== 'http:') return 'it speaks no TLS';
  if (username !== '' || password !== '') return 'it asks for no user and no password';
  if (hostname !== 'localhost' && hostname !== '[::1]' && !/^127(?:\.\d+){3}$/.test(hostname))
    return 'everybody who reaches that address could read and replace all images';
  return port === '0' ? 'the scheduler must know the port' : undefined;
}

/**
 * The registry's file of settings; JSON is YAML.
 * @param address - `unix:///path` or `http://127.…:port`
 * @param secret - signs the state of uploads
 */
export function registryConfig(
  settings: RegistrySettings,
  address: string,
  secret: string,
  mode: RegistryMode = 'all',
): object {
  const url = new URL(address);
  const listens =
    url.protocol === 'unix:'
      ? { net: 'unix', addr: decodeURIComponent(url.pathname) }
      : { net: 'tcp', addr: `${url.hostname}:${url.port || '80'}` };
  return {
    version: 0.1,
    log: { level: 'warn', accesslog: { disabled: true } },
    storage: {
      ...storageOf(settings),
      // Machines reach the registry through schedulers alone, and no store behind it.
      redirect: { disable: true },
      delete: { enabled: true },
      maintenance: {
        uploadpurging: { enabled: mode === 'all', age: '24h', interval: '6h', dryrun: false },
        readonly: { enabled: mode === 'reads' },
      },
    },
    http: { ...listens, secret, draintimeout: DRAIN[mode] },
  };
}

function storageOf(settings: RegistrySettings): object {
  const bucket = settings.LONGSHORE_OBJECTS_BUCKET;
  if (bucket === undefined)
    return { filesystem: { rootdirectory: join(registryDirectory(settings.LONGSHORE_DATA_DIR), 'data') } };
  const endpoint = settings.LONGSHORE_OBJECTS_ENDPOINT;
  const [key, secret] = [settings.LONGSHORE_OBJECTS_ACCESS_KEY_ID, settings.LONGSHORE_OBJECTS_SECRET_ACCESS_KEY];
  return {
    s3: {
      bucket,
      region: settings.LONGSHORE_OBJECTS_REGION,
      rootdirectory: `/${settings.LONGSHORE_OBJECTS_PREFIX}registry`,
      ...(endpoint === undefined ? {} : { regionendpoint: endpoint, secure: endpoint.startsWith('https:') }),
      ...(key === undefined || secret === undefined ? {} : { accesskey: key, secretkey: secret }),
    },
  };
}

/** A place in a bucket, as the store of objects opens it. */
export interface MarksPlace {
  readonly bucket: string;
  readonly endpoint: string | undefined;
  readonly region: string;
  readonly pathStyle: boolean;
  readonly prefix: string;
  readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string } | undefined;
}

/** Where registries on one bucket leave their marks: beside the data, outside of it. undefined: there is no bucket. */
export function marksPlace(settings: RegistrySettings): MarksPlace | undefined {
  const bucket = settings.LONGSHORE_OBJECTS_BUCKET;
  if (bucket === undefined) return undefined;
  const endpoint = settings.LONGSHORE_OBJECTS_ENDPOINT;
  const [accessKeyId, secretAccessKey] = [
    settings.LONGSHORE_OBJECTS_ACCESS_KEY_ID,
    settings.LONGSHORE_OBJECTS_SECRET_ACCESS_KEY,
  ];
  return {
    bucket,
    endpoint,
    region: settings.LONGSHORE_OBJECTS_REGION,
    // As the registry itself does.
    pathStyle: endpoint !== undefined,
    prefix: `${settings.LONGSHORE_OBJECTS_PREFIX}registry-marks/`,
    credentials:
      accessKeyId === undefined || secretAccessKey === undefined ? undefined : { accessKeyId, secretAccessKey },
  };
}
