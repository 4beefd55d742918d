// A bucket as `s3fs` mounts it: rules for its fields, the program's arguments and environment. Pure. Must stay true: a
// credential is in the environment alone, never in an argument; no field can become a second option.
import { isIP } from 'node:net';
import { bucketProblem } from '#shared/domain/buckets.ts';

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

const PART = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;
/** Keys are texts of printable ASCII: anything else has no place in a header. */
const KEY = /^[\u0021-\u007e]*$/;

/** @returns why the bucket cannot be mounted; undefined: it may be tried */
export function storeProblem(store: Store): string | undefined {
  const { prefix, accessKey, secretKey } = store;
  const problem = bucketProblem(store);
  if (problem !== undefined) return `the ${problem.field} ${problem.says}`;
  if (prefix !== '' && !prefix.split('/').every((part) => PART.test(part)))
    return 'the prefix must consist of letters, digits, dots, dashes and underscores, with slashes between them';
  if ((accessKey === '') !== (secretKey === '')) return 'an access key and a secret key belong together';
  return KEY.test(accessKey) && KEY.test(secretKey) ? undefined : 'a key has a character that no key can have';
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
