// Calls of the REST API as lines for curl, with the token that the command line uses. Pure but for the addresses.
import { root } from '../api/client.ts';
import { apiUrl } from '../api/session.ts';
import { word } from './word.ts';

export interface Call {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE';
  /** Below `/api/v1`. */
  readonly path: string;
  readonly body?: unknown;
  /** Fields of the body whose values are secret: a line shows dots for them. */
  readonly hidden?: readonly string[];
}

const BEARER = '-H "Authorization: Bearer $(longshore context token)"';

/** The address of the scheduler for programs: as this browser reaches it, where the console has none of its own. */
export const base = (): string => apiUrl() ?? `${location.origin}${root.slice(0, -'/console'.length)}`;

/** A line for curl that sends a call below `/api/v1`. */
export const curlOf = ({ method, path, body, hidden = [] }: Call): string =>
  curlTo(`${base()}/api/v1${path}`, method, body === undefined ? undefined : shownBody(body, hidden));

/** @param body - JSON; undefined: none is sent */
export const curlTo = (url: string, method: Call['method'], body: string | undefined): string =>
  [
    'curl',
    ...(method === (body === undefined ? 'GET' : 'POST') ? [] : [`-X ${method}`]),
    BEARER,
    ...(body === undefined ? [] : [`-H 'Content-Type: application/json' -d ${word(body)}`]),
    word(url),
  ].join(' ');

const shownBody = (body: unknown, hidden: readonly string[]): string =>
  JSON.stringify(body, (name, value: unknown) => (hidden.includes(name) ? '…' : value));
