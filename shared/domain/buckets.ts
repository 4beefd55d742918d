/**
 * Rules for a bucket that is mounted. The scheduler reports violations to a stub's author; the mount helper enforces
 * them against any scheduler. Pure.
 */

export interface BucketPlace {
  readonly bucket: string;
  /** URL of its server; empty: Amazon's. */
  readonly endpoint: string;
  readonly region: string;
}

export interface BucketProblem {
  readonly field: keyof BucketPlace;
  /** Follows the name of the field. */
  readonly says: string;
}

const BUCKET = /^[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){1,61}[A-Za-z0-9]$/;
const REGION = /^[A-Za-z0-9-]{0,63}$/;
const MAX_URL = 1024;

/** @returns the first field that cannot be; undefined: the bucket may be tried */
export function bucketProblem({ bucket, endpoint, region }: BucketPlace): BucketProblem | undefined {
  if (!BUCKET.test(bucket))
    return { field: 'bucket', says: `${JSON.stringify(bucket.slice(0, 80))} is not the name of a bucket` };
  if (!REGION.test(region)) return { field: 'region', says: 'must consist of letters, digits and dashes' };
  const says = endpoint === '' ? undefined : endpointProblem(endpoint);
  return says === undefined ? undefined : { field: 'endpoint', says };
}

function endpointProblem(text: string): string | undefined {
  const url = URL.parse(text);
  // A comma would begin another option of the program that mounts.
  if (text.length > MAX_URL || url === null || !/^https?:$/.test(url.protocol) || /[\s,\\]/.test(text))
    return 'must be an http or https URL';
  if (url.username !== '' || url.password !== '') return 'must not carry a user name or a password';
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    return "must have no path: the bucket's name has a field of its own";
  return undefined;
}
