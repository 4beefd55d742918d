/**
 * Classifies failed pulls by the messages of the engine and the registry (their statuses say little: a wrong password
 * is a 500). Pure.
 * Source: the texts of Docker Engine 20.10 to 28; reference, scheduling §11.
 */

import { AppError } from '#shared/errors.ts';
import { EngineError } from '../containers/runtime.ts';

export type PullFailure =
  /** The registry has no such image. */
  | 'not_found'
  /** The registry requires other credentials. */
  | 'unauthorized'
  /** The registry's image is not for this machine, or the name is invalid. */
  | 'bad_manifest'
  /** The operator lets no workspace pull from that registry's address. */
  | 'closed'
  /** The image is larger than this machine takes. */
  | 'too_large'
  /** The registry or the connection to it is busy or broken: worth another try. */
  | 'busy'
  /** No registry answers at that name or address: worth another try, as networks and name servers come back. */
  | 'unreachable'
  /** The bytes differ from their digest; another try may bring the right ones. */
  | 'corrupt'
  /** This machine has no room. */
  | 'disk_full'
  /** The engine does not answer, or this machine's disk or memory fails it. */
  | 'engine'
  /** The engine's words are not known: worth another try. */
  | 'unknown';

/** Words of the engine that say nothing by themselves; what follows them decides. Addresses stand in quotes. */
const WRAPPERS =
  /^(?:cannot ask the registry for image \S+|Error response from daemon|(?:Head|Get|Post) "[^"]*"|error pulling image configuration|(?:image config )?download failed after attempts=\d+|failed to (?:resolve reference|do request|copy|authorize|fetch \w+(?: \w+)*)(?: "[^"]*")?|errors|failed to pull and unpack image "[^"]*"):\s+/;

/**
 * The engine's own words about a registry's answer. They decide alone, because a registry's words follow them: a
 * tenant's registry may write "no space left on device" there.
 */
const FRAMES: readonly (readonly [PullFailure, RegExp])[] = [
  ['closed', /^registry \S+ is closed to images of workspaces: /],
  ['too_large', /^image \S+ is too large: /],
  ['not_found', /^(?:manifest for|repository) \S+ not found: /],
  ['unauthorized', /^pull access denied\b/],
  // The codes of registries, as the engine writes them.
  ['busy', /^(?:toomanyrequests|too many requests|unavailable): /],
  ['unauthorized', /^(?:unauthorized|authentication required|denied): /],
  ['not_found', /^(?:[a-z]+ )+unknown: /],
  [
    'bad_manifest',
    /^(?:(?:[a-z]+ )+invalid|manifest unverified|unsupported|invalid character '.*' (?:looking|after|in) .*): /,
  ],
  ['unknown', /^(?:unknown|unknown error): /],
  // The certificate of a registry holds names of its choice; a wrong clock or a missing authority is this machine's.
  ['unreachable', /^(?:tls|x509|remote error): (?!.*handshake timeout$)/],
  // A registry's media type or header line follows, and stands in no double quotes.
  ['bad_manifest', /^(?:if present, )?mediaType in /],
  ['unknown', /^net\/http: HTTP\/1\.x transport connection broken: malformed /],
];
/** Frames with the status of the registry's answer. */
const STATUS =
  /^(?:received unexpected HTTP status|error parsing HTTP|unexpected (?:HTTP )?status(?: code)?(?: \[[^\]]*\])?(?: from \w+ request to \S+)?):? (\d{3})\b/;

/** Failures of this machine's disk and memory: they end the engine's sentence, and names in layers do not. */
const OF_HOST: readonly (readonly [PullFailure, RegExp])[] = [
  ['disk_full', /(?:^|: )(?:no space left on device|disk quota exceeded)\W*$/i],
  [
    'engine',
    /(?:^|: )(?:input\/output error|read-only file system|cannot allocate memory|too many open files(?: in system)?|structure needs cleaning|stale (?:NFS )?file handle|resource temporarily unavailable|context canceled|signal: killed)\W*$/i,
  ],
];

const TABLE: readonly (readonly [PullFailure, RegExp])[] = [
  ['corrupt', /verification failed|unexpected commit digest|digest mismatch|does not match|wrong digest/i],
  [
    'unreachable',
    /no such host|server misbehaving|name resolution|connection refused|no route to host|(?:network|host) is (?:unreachable|down)|cannot assign requested address/i,
  ],
  [
    'bad_manifest',
    /invalid reference format|invalid (?:repository|tag) name|manifest invalid|no matching manifest|unsupported (?:manifest|media ?type|schema)|mediatype|missing signature|schema ?version|parsing|unmarshal|JSON input/i,
  ],
  // A registry gives this answer for a missing image too, so the cure names both causes.
  [
    'unauthorized',
    /unauthorized|access denied|no basic auth credentials|authentication required|incorrect username or password/i,
  ],
  ['not_found', /manifest unknown|name unknown|not found|does not exist|no such (?:image|manifest)/i],
  ['unauthorized', /denied|forbidden/i],
  [
    'busy',
    /time ?out|timed out|deadline exceeded|\bEOF\b|connection reset|broken pipe|closed network connection|stream error|GOAWAY|INTERNAL_ERROR|TLS handshake|proxyconnect|download failed|unavailable|try again|ended before|nothing heard/i,
  ],
];

const QUOTED = /"(?:[^"\\]|\\.)*"/g;

/**
 * @param message - the engine's error line or answer
 * @returns the failure; `disk_full` is what the engine says, and holds when the disk agrees
 */
export function classifyPull(message: string): PullFailure {
  let words = message.trim();
  for (let at = WRAPPERS.exec(words); at !== null; at = WRAPPERS.exec(words)) words = words.slice(at[0].length);
  const status = Number(STATUS.exec(words)?.[1] ?? 0);
  if (status > 0) return failureOfStatus(status);
  const framed = FRAMES.find(([, pattern]) => pattern.test(words));
  if (framed !== undefined) return framed[0];
  // Quotes hold an address or the text of somebody else.
  const own = words.replaceAll(QUOTED, '""');
  return [...OF_HOST, ...TABLE].find(([, pattern]) => pattern.test(own))?.[0] ?? 'unknown';
}

function failureOfStatus(status: number): PullFailure {
  if (status === 408 || status === 429 || status >= 500) return 'busy';
  if (status === 401 || status === 403) return 'unauthorized';
  if (status === 404) return 'not_found';
  return 'bad_manifest';
}

/** Whether another try may succeed. A full disk is handled separately. */
export const isTransient = (failure: PullFailure): boolean =>
  failure === 'busy' ||
  failure === 'unreachable' ||
  failure === 'corrupt' ||
  failure === 'engine' ||
  failure === 'unknown';

/**
 * The error of an image that a start lacks. A busy registry, an engine that does not answer and a full disk are causes
 * of the host or of what is around it: the user's deployment is not at fault, and its container may start elsewhere.
 */
export function imageFailure(failure: PullFailure, text: string, cause: unknown): Error {
  switch (failure) {
    case 'busy':
      return new AppError('registry_busy', text, { cause });
    case 'engine':
      return new EngineError('unavailable', text, { cause });
    case 'disk_full':
      return new AppError('disk_full', text, { cause });
    case 'unreachable':
      return new AppError('registry_unreachable', text, { cause });
    default:
      return new AppError('image_error', text, { cause });
  }
}

/** Advice that follows the engine's message. */
export const PULL_CURES: Readonly<Record<PullFailure, string>> = {
  not_found: 'check the name and the tag, and that it was pushed',
  unauthorized:
    'give the workspace credentials for that repository (`longshore registry set`), or the scheduler (LONGSHORE_REGISTRY_CONFIG), or check the name',
  bad_manifest: 'check that the name means an image for the architecture of the machines',
  closed: 'name the image in a registry that this machine may ask',
  too_large: 'take a smaller image, or have the operator raise LONGSHORE_AGENT_IMAGE_MIB of the agent',
  busy: 'the registry was busy or could not be reached, several times',
  unreachable:
    'no registry answered at that name, in several tries: check the name, and the name server, network and proxy of that machine',
  corrupt: 'the registry sent other bytes than it announced, several times',
  disk_full: 'make room on the disk of that machine',
  engine: 'look at the container engine of that machine, its disk and its memory',
  unknown: 'look at the words of the engine; it failed several times',
};

const GB = 1_000_000_000;
const inGb = (bytes: number): string => `${Math.round((bytes / GB) * 10) / 10} GB`;

/** The error about an image with more bytes than this machine takes. */
export const tooLarge = (reference: string, bytes: number, maxBytes: number): AppError =>
  new AppError(
    'image_error',
    `image ${reference} is too large: it has ${inGb(bytes)}, and this machine takes ${inGb(maxBytes)}`,
  );
