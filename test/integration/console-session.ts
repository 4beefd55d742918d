// Sessions of the web console, as its pages begin them and send them.
import { expect } from 'vitest';
import type { Json, Platform } from './verbs-fixture.ts';

export interface ConsoleSession {
  readonly cookie: string;
  readonly key: string;
}

type Address = Pick<Platform, 'address'>;

/** Sends a body to the session's address as a page of the console would. */
export async function postSession(
  { address }: Address,
  body: Json,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ readonly status: number; readonly headers: Headers; readonly json: Json }> {
  const answer = await fetch(`http://${address}/console/session`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  return { status: answer.status, headers: answer.headers, json: (await answer.json()) as Json };
}

/** Begins a session by a token or by the code of a link. */
export async function enterConsole(platform: Address, by: Json): Promise<ConsoleSession> {
  const { status, headers, json } = await postSession(platform, by);
  expect([status, json['message']]).toEqual([200, undefined]);
  return { cookie: (headers.get('set-cookie') ?? '').split(';', 1)[0] ?? '', key: String(json['key']) };
}

/** Headers of a request by the halves that are given. */
export const sentBy = ({ cookie, key }: Partial<ConsoleSession>): Readonly<Record<string, string>> => ({
  ...(cookie === undefined ? {} : { cookie }),
  ...(key === undefined ? {} : { 'x-longshore-console': key }),
});

/** A token of the own workspace. */
export async function aToken(
  { call, own }: Pick<Platform, 'call' | 'own'>,
  body: Json = {},
): Promise<{ readonly id: string; readonly key: string }> {
  const { json } = await call(`POST /api/v1/token/${own.workspaceId}`, body);
  return { id: String(json['id']), key: String(json['key']) };
}
