// `longshore token`: credentials of the workspace. A key is shown once, when it is made.
import { isRecord } from '#shared/json.ts';
import { CliError, usageError } from '../errors.ts';
import type { TokenCreateFlags, TokenVerbFlags } from '../flags.ts';
import { ageOf } from '../format.ts';
import { listField, objectField, textField } from '../json.ts';
import { note, print, printJson } from '../print.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

/** `admin`: a type that only an administrator can create. */
const TYPES = ['workspace', 'workspace_restricted', 'admin'];

/** The most items that the scheduler returns for one list. */
const MOST_LISTED = 1000;

export async function runTokenList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.gateway('GET', '/tokens');
    const nowMs = Date.now();
    const own = tokenIdOf(client.context.token);
    showList(
      invocation,
      listField(answer, 'tokens'),
      ['ID', 'TYPE', 'ACTIVE', 'USE', 'KEY', 'CREATED', ''],
      (token) => [
        textField(token, 'tokenId'),
        textField(token, 'tokenType'),
        token['active'] === true ? 'yes' : 'no',
        token['reusable'] === false ? 'once' : 'any',
        textField(token, 'key'),
        `${ageOf(textField(token, 'createdAt'), nowMs)} ago`,
        textField(token, 'tokenId') === own ? '(this one)' : '',
      ],
    );
  });
}

/** Prints the key alone on stdout, for scripts; the description goes to stderr. */
export async function runTokenCreate(flags: TokenCreateFlags, invocation: Invocation): Promise<void> {
  if (!TYPES.includes(flags.type)) throw usageError(`--type ${flags.type} is not one of ${TYPES.join(', ')}`);
  await withClient(invocation, async (client) => {
    const query = new URLSearchParams({ tokenType: flags.type, ...(flags.once === true ? { reusable: 'false' } : {}) });
    const token = objectField(await client.gateway('POST', `/tokens?${query.toString()}`), 'token');
    if (invocation.options.json === true) {
      printJson(token);
      return;
    }
    print(textField(token, 'key'));
    const use = flags.once === true ? ', good for one use' : '';
    note(
      `token ${textField(token, 'tokenId')} (${textField(token, 'tokenType')}${use}); its key is shown this once: keep it`,
    );
  });
}

export async function runTokenToggle(id: string, flags: TokenVerbFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    mustNotBeOwn(id, client.context.token, flags, 'switch off');
    const answer = await client.gateway('POST', `/tokens/${encodeURIComponent(id)}/toggle`).catch(unknownToken(id));
    const token = objectField(answer, 'token');
    showDone(invocation, token, [`token ${id} is ${token['active'] === true ? 'active again' : 'switched off'}`]);
  });
}

export async function runTokenDelete(id: string, flags: TokenVerbFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    mustNotBeOwn(id, client.context.token, flags, 'delete');
    // The call answers the same for an unknown token and for one that it deletes, so look first.
    const tokens = listField(await client.gateway('GET', '/tokens'), 'tokens');
    const isThere = tokens.some((token) => textField(token, 'tokenId') === id.toLowerCase());
    if (!isThere && tokens.length < MOST_LISTED) throw noToken(id);
    await client.gateway('DELETE', `/tokens/${encodeURIComponent(id)}`).catch(unknownToken(id));
    showDone(invocation, { tokenId: id, done: 'deleted' }, [`deleted token ${id}`]);
  });
}

/** The token's id from its JWT; empty when it is no JWT. Only the scheduler judges a token: this is for warnings. */
export const tokenIdOf = (token: string): string => claimOf(token, 'jti');

/** The token's type, such as `admin`; empty when it is no JWT. Use it for messages, never for decisions. */
export const tokenTypeOf = (token: string): string => claimOf(token, 'typ');

function claimOf(token: string, name: string): string {
  try {
    const claims: unknown = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8'));
    return isRecord(claims) ? textField(claims, name) : '';
  } catch {
    return '';
  }
}

function mustNotBeOwn(id: string, token: string, flags: TokenVerbFlags, what: string): void {
  if (flags.force === true || tokenIdOf(token) !== id) return;
  throw usageError(
    `${id} is the token that this command uses: to ${what === 'delete' ? 'delete it' : 'switch it off'} all the same, add --force`,
  );
}

function unknownToken(id: string): (error: unknown) => never {
  return (error) => {
    if (!(error instanceof CliError) || !/^Unable to (toggle|delete) token/.test(error.message)) throw error;
    throw noToken(id, error);
  };
}

const noToken = (id: string, cause?: unknown): CliError =>
  new CliError(`there is no token ${id} to change: \`longshore token list\` shows them`, { cause });
