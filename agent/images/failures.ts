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
  /** The registry or the connection to it is busy or broken: worth another try. */
  | 'busy'
  /** No registry answers at that name or address: worth another try, as networks and name servers come back. */
  | 'unreachable'
  /** The bytes differ from their digest; another try may bring the right ones. */
  | 'corrupt'
  /** This machine has no room. */
  | 'disk_full'
  /** The engine itself does not answer. */
  | 'engine'
  /** The engine's words are not known: worth another try. */
  | 'unknown';

const TABLE: readonly (readonly [PullFailure, RegExp])[] = [
  ['disk_full', /no space left on device|disk quota exceeded/i],
  ['corrupt', /verification failed|unexpected commit digest|digest mismatch|does not match|wrong digest/i],
  [
    'unreachable',
    /no such host|server misbehaving|name resolution|connection refused|no route to host|network is unreachable/i,
  ],
  // A busy registry's page is often not JSON, and is then reported as a parse error: the status decides.
  ['busy', /toomanyrequests|too many requests|\b(?:HTTP|status(?: code)?):? ?(?:429|5\d\d)\b|HTTP (?:429|5\d\d)/i],
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

/** @param message - the engine's error line or answer */
export function classifyPull(message: string): PullFailure {
  for (const [failure, pattern] of TABLE) if (pattern.test(message)) return failure;
  return 'unknown';
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
  busy: 'the registry was busy or could not be reached, several times',
  unreachable:
    'no registry answered at that name, in several tries: check the name, and the name server, network and proxy of that machine',
  corrupt: 'the registry sent other bytes than it announced, several times',
  disk_full: 'make room on the disk of that machine',
  engine: 'look at the container engine of that machine',
  unknown: 'look at the words of the engine; it failed several times',
};
