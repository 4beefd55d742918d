import type { ServerResponse } from 'node:http';

const CODES: Readonly<Record<number, string>> = {
  401: 'UNAUTHORIZED',
  403: 'DENIED',
  404: 'MANIFEST_UNKNOWN',
  429: 'TOOMANYREQUESTS',
};

/** Answers the engine with an error of a registry. */
export function refuse(response: ServerResponse, status: number): void {
  if (response.headersSent) return void response.destroy();
  const text = JSON.stringify({ errors: [{ code: CODES[status] ?? 'UNKNOWN', message: 'see the log of the agent' }] });
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
  response.end(text);
}
