// A bucket as `s3fs` mounts it: rules for its fields, the program's arguments and environment. Pure. Must stay true: a
// credential is in the environment alone, never in an argument; no field can become a second option.
import { isIP } from 'node:net';

export interface Store {
  readonly bucket: string;
  /** Path in the bucket, without slashes at its ends; empty: the whole bucket. */
  readonly prefix: string;
  /** URL; empty: Amazon's. */
  readonly endpoint: string;
  readonly region: string;
  readonly pathStyle: boolean;
  readonly readOnly: boolean;
  /** Empty, with the secret key: the bucket is public. */
  readonly accessKey: string;
  readonly secretKey: string;
}

const BUCKET = /^[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){1,61}[A-Za-z0-9]$/;
const PART = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;
const REGION = /^[A-Za-z0-9-]{0,63}$/;
/** Keys are texts of printable ASCII: anything else has no place in a header. */
const KEY = /^[\u0021-\u007e]*$/;

/** @returns why the bucket cannot be mounted, naming the field; undefined: it may be tried */
export function storeProblem({ bucket, prefix, endpoint, region, accessKey, secretKey }: Store): string | undefined {
  if (!BUCKET.test(bucket)) return `${JSON.stringify(bucket.slice(0, 80))} is not the name of a bucket`;
  if (prefix !== '' && !prefix.split('/').every((part) => PART.test(part)))
    return 'the prefix must consist of letters, digits, dots, dashes and underscores, with slashes between them';
  if (!REGION.test(region)) return 'the region must consist of letters, digits and dashes';
  if ((accessKey === '') !== (secretKey === '')) return 'an access key and a secret key belong together';
  if (!KEY.test(accessKey) || !KEY.test(secretKey)) return 'a key has a character that no key can have';
  return endpoint === '' ? undefined : endpointProblem(endpoint);
}

function endpointProblem(text: string): string | undefined {
  const url = URL.parse(text);
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:') || /[\s,\\]/.test(text))
    return 'the endpoint must be an http or https URL';
  if (url.username !== '' || url.password !== '') return 'the endpoint must not carry a user name or a password';
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    return 'the endpoint must have no path: the name of the bucket is the bucket alone';
  return undefined;
}

/** Address of the server, without a slash at its end. */
export const endpointOf = ({ endpoint }: Pick<Store, 'endpoint'>): string =>
  endpoint === '' ? 'https://s3.amazonaws.com' : new URL(endpoint).origin;

export interface DaemonPlace {
  /** Where it is mounted. */
  readonly path: string;
  /** Directory of its open files. */
  readonly cacheDir: string;
  /** MiB that it leaves free on that disk. */
  readonly leaveFreeMib: number;
  /** Whether the program has the option `compat_dir`: newer ones refuse a missing prefix without it. */
  readonly hasCompatDir: boolean;
}

export function daemonArguments(store: Store, { path, cacheDir, leaveFreeMib, hasCompatDir }: DaemonPlace): string[] {
  const { bucket, prefix, region, readOnly, accessKey } = store;
  const endpoint = endpointOf(store);
  const options = [
    `url=${endpoint}`,
    'sigv4',
    ...(region === '' ? [] : [`endpoint=${region}`]),
    // A server named by its address has no names of buckets below it, and no certificate has names with more dots.
    ...(store.pathStyle || isAddress(endpoint) || bucket.includes('.') ? ['use_path_request_style'] : []),
    ...(accessKey === '' ? ['public_bucket=1'] : []),
    ...(readOnly ? ['ro'] : []),
    ...(prefix !== '' && hasCompatDir ? ['compat_dir'] : []),
    // Every user of an image may read and write, as in volumes of other drivers.
    'allow_other',
    'umask=0000',
    'mp_umask=0000',
    'nosuid',
    'nodev',
    // Other machines' changes are seen after this time.
    'stat_cache_expire=10',
    'max_stat_cache_size=20000',
    'connect_timeout=5',
    'readwrite_timeout=10',
    'retries=2',
    `tmpdir=${cacheDir}`,
    `ensure_diskfree=${leaveFreeMib}`,
    'dbglevel=err',
  ];
  return [prefix === '' ? bucket : `${bucket}:/${prefix}`, path, '-f', '-o', options.join(',')];
}

const isAddress = (endpoint: string): boolean => {
  const host = new URL(endpoint).hostname.replace(/^\[(.*)\]$/, '$1');
  return isIP(host) !== 0 || host === 'localhost';
};

/** @param proxy - URL of the guard through which every request goes; undefined: the store is the operator's own */
export function daemonEnvironment(
  { accessKey, secretKey }: Pick<Store, 'accessKey' | 'secretKey'>,
  { home, caBundle, proxy }: { readonly home: string; readonly caBundle: string | undefined; readonly proxy?: string },
): Record<string, string> {
  return {
    PATH: '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin',
    LC_ALL: 'C',
    // Credentials and settings of a person's own home are not for a workspace's bucket.
    HOME: home,
    MALLOC_ARENA_MAX: '2',
    ...(accessKey === '' ? {} : { AWSACCESSKEYID: accessKey, AWSSECRETACCESSKEY: secretKey }),
    ...(caBundle === undefined ? {} : { CURL_CA_BUNDLE: caBundle }),
    ...(proxy === undefined ? {} : { http_proxy: proxy, https_proxy: proxy, all_proxy: proxy, no_proxy: '' }),
  };
}

/** The cause of a daemon's failure, in its log. */
export function causeOf(log: string): { readonly text: string; readonly silent: boolean } {
  if (/invalid credentials|AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId/i.test(log))
    return { text: 'its server refuses the access key or the secret key', silent: false };
  if (/bucket or key not found|NoSuchBucket|not found\(host/i.test(log))
    return { text: 'its server has no such bucket', silent: false };
  if (/certificate|CURLE_SSL|CURLE_PEER/i.test(log))
    return { text: 'the certificate of its server is not trusted (LONGSHORE_CA_BUNDLE)', silent: false };
  if (/unable to connect|COULDNT_CONNECT|COULDNT_RESOLVE|TIMEDOUT|timeout now|giving up/i.test(log))
    return { text: 'its server does not answer', silent: true };
  return { text: 's3fs could not mount it; its log is in the directory of the mount helper', silent: false };
}
