// Tokens of the platform that are good no more, in calls to public applications and pods, which need none.
import { generateKeyPairSync } from 'node:crypto';
import { SignJWT } from 'jose';
import { afterEach, describe, expect, test } from 'vitest';
import { signClaims } from '#scheduler/workspaces/identity/jwt.ts';
import * as ports from '../../helpers/played-ports.ts';
import { PATH, cleanUp, connected, serve, turned } from '../../helpers/played-streams.ts';

afterEach(cleanUp);
afterEach(ports.cleanUp);

const { privateKey, publicKey } = generateKeyPairSync('ed25519');
const keys = { signingKey: privateKey, publicKey };
/** A key with a name, which may have been retired since. */
const named = { ...keys, ring: { newest: { id: '0123456789ab', key: privateKey }, publicKeyOf: () => undefined } };
const said = { id: 'token-1', nowMs: Date.UTC(2026, 0, 1) };
const claims = { ws: 'w', typ: 'workspace_restricted' };

const byAnother = (of: { readonly iss: string; readonly typ?: string }): Promise<string> =>
  new SignJWT(of).setProtectedHeader({ alg: 'EdDSA' }).sign(privateKey);

const OURS: Readonly<Record<string, () => Promise<string>>> = {
  'switched off': () => signClaims(keys, claims, said),
  'of a retired key': () => signClaims(named, claims, said),
  expired: () => signClaims(keys, claims, { ...said, lifeMs: 1000 }),
  'of a container': () => signClaims(keys, { typ: 'container', ws: 'w', stub: 's', epoch: 1 }, said),
  'with an altered signature': async () => `${(await signClaims(keys, claims, said)).slice(0, -8)}AAAAAAAA`,
};
const THEIRS: Readonly<Record<string, () => Promise<string>>> = {
  'of another issuer': () => byAnother({ iss: 'example', typ: 'user' }),
  'of a like issuer without a type': () => byAnother({ iss: 'longshore' }),
  'with two dots alone': () => Promise.resolve('of.their.own'),
};

/** The headers that an application gets. */
async function headersOf(authorization: readonly string[]): Promise<string[][]> {
  const { address, task } = await serve();
  const { socket } = connected(address);
  const lines = authorization.map((value) => `Authorization: ${value}\r\n`).join('');
  socket.write(`GET ${PATH}/ HTTP/1.1\r\nHost: x\r\n${lines}\r\n`);
  const one = await task(1);
  one.begin();
  await turned(() => one.head !== '');
  const { headers } = JSON.parse(one.head) as { readonly headers: string[][] };
  return headers.filter(([name]) => name === 'authorization');
}

describe('an application', () => {
  test.for(Object.keys(OURS))('does not get a token of the platform that is %s', async (name) => {
    const token = (await OURS[name]?.()) ?? '';
    expect(await headersOf([`Bearer ${token}`])).toEqual([]);
    expect(await headersOf([token])).toEqual([]);
    // Behind a credential of the application, too: only the first one is looked at as the caller's.
    expect(await headersOf(['Basic dTpw', `bearer  ${token}`])).toEqual([['authorization', 'Basic dTpw']]);
  });

  test.for(Object.keys(THEIRS))('gets a token of its own that is %s', async (name) => {
    const value = `Bearer ${(await THEIRS[name]?.()) ?? ''}`;
    expect(await headersOf([value])).toEqual([['authorization', value]]);
  });
});

test('a pod does not get a token of the platform that is switched off, and gets its own', async () => {
  const heads: string[] = [];
  const { port } = await ports.aProgram((socket) => {
    socket.once('data', (head: Buffer) => {
      heads.push(head.toString('latin1'));
      socket.end('HTTP/1.1 204 No Content\r\n\r\n');
    });
  });
  const { address } = await ports.serve({ ports: [port] });
  for (const token of [await signClaims(keys, claims, said), 'of.their.own']) {
    const { socket, text } = ports.connected(address);
    const authorization = `Authorization: Bearer ${token}`;
    socket.write(`GET /pod/public/${ports.STUB}/ HTTP/1.1\r\nHost: x\r\n${authorization}\r\n\r\n`);
    await turned(() => text().includes('204'));
  }
  expect(heads.map((head) => /^authorization: .*$/im.exec(head)?.[0].trim())).toEqual([
    undefined,
    'Authorization: Bearer of.their.own',
  ]);
});
