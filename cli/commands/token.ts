// `longshore token`: credentials of the workspace. A key is shown once, when it is made.
import { isUuid } from '#shared/domain/ids.ts';
import { TOKEN_SCOPES, isTokenScope } from '#shared/domain/token-scopes.ts';
import { isRecord } from '#shared/json.ts';
import type { Client } from '../client.ts';
import { CliError, notFound, usageError } from '../errors.ts';
import type { OfWorkspace, TokenCreateFlags, TokenUpdateFlags, TokenVerbFlags } from '../flags.ts';
import { ageOf, durationOf } from '../format.ts';
import { listField, objectField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note, print, printJson } from '../print.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { listedIdOf } from './whole-ids.ts';
import { workspaceIdOf } from './workspace-reference.ts';

/** `admin`: a type that only an administrator can create. */
const TYPES = ['workspace', 'workspace_restricted', 'admin'];

export async function runTokenList(flags: OfWorkspace, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.rest(await tokensPath(client, flags));
    const nowMs = Date.now();
    const own = tokenIdOf(client.context.token);
    showList(
      invocation,
      listField(answer, 'data'),
      ['ID', 'NAME', 'TYPE', 'ACTIVE', 'MAY', 'EXPIRES', 'LAST USED', 'KEY', 'CREATED', ''],
      (token) => [
        textField(token, 'id'),
        textField(token, 'name') || '-',
        textField(token, 'token_type'),
        token['active'] === true ? 'yes' : 'no',
        limitsOf(token),
        expiryOf(textField(token, 'expires_at'), nowMs),
        agoOf(textField(token, 'last_used_at'), nowMs),
        textField(token, 'key'),
        agoOf(textField(token, 'created_at'), nowMs),
        textField(token, 'id') === own ? '(this one)' : '',
      ],
    );
  });
}

/** Prints the key alone on stdout, for scripts; the description goes to stderr. */
export async function runTokenCreate(flags: TokenCreateFlags, invocation: Invocation): Promise<void> {
  if (!TYPES.includes(flags.type)) throw usageError(`--type ${flags.type} is not one of ${TYPES.join(', ')}`);
  await withClient(invocation, async (client) => {
    const token = await client.restCall('POST', await tokensPath(client, flags), {
      token_type: flags.type,
      ...(flags.once === true ? { reusable: false } : {}),
      ...(await chosen(client, flags)),
    });
    if (invocation.options.json === true) {
      printJson(token);
      return;
    }
    print(textField(token, 'key'));
    const expires = textField(token, 'expires_at');
    const facts = [
      textField(token, 'token_type'),
      ...(flags.once === true ? ['good for one use'] : []),
      ...(limitsOf(token) === 'all' ? [] : [`may: ${limitsOf(token)}`]),
      ...(expires === '' ? [] : [`expires ${expires}`]),
    ];
    note(`token ${textField(token, 'id')} (${facts.join(', ')}); its key is shown this once: keep it`);
  });
}

export async function runTokenUpdate(
  reference: string,
  flags: TokenUpdateFlags,
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await idOf(client, reference, flags);
    const body = await chosen(client, flags);
    if (Object.keys(body).length === 0) throw usageError('give --name, --expires, --scope or --app: what changes');
    const path = `${await tokensPath(client, flags)}/${encodeURIComponent(id)}`;
    const token = await client.restCall('PATCH', path, body).catch(unknownToken(id));
    const expires = textField(token, 'expires_at');
    showDone(invocation, token, [
      `token ${id}: name ${textField(token, 'name') || '-'}, may ${limitsOf(token)}, expires ${expires || 'never'}`,
    ]);
  });
}

/** Tokens of a workspace; an administrator may name another one than that of the token. */
const tokensPath = async (client: Client, { workspace }: OfWorkspace): Promise<string> =>
  `/token/${await workspaceIdOf(client, workspace)}`;

const idOf = async (client: Client, text: string, of: OfWorkspace): Promise<string> =>
  listedIdOf(client, text, 'token', await tokensPath(client, of));

/** The body of the request that the flags ask for. */
async function chosen(client: Client, flags: TokenUpdateFlags): Promise<JsonObject> {
  return {
    ...(flags.name === undefined ? {} : { name: flags.name }),
    ...(flags.expires === undefined ? {} : { expires_at: timeIn(flags.expires, Date.now()) }),
    ...(flags.scope === undefined ? {} : { scopes: scopesIn(flags.scope) }),
    ...(flags.app === undefined ? {} : { app_id: await appIdOf(client, flags) }),
  };
}

const scopesIn = (texts: readonly string[]): readonly string[] => {
  const scopes = texts.flatMap((text) => text.split(',')).filter((text) => text !== '');
  if (scopes.includes('all')) {
    if (scopes.length > 1) throw usageError('--scope all stands alone');
    return [];
  }
  const unknown = scopes.find((scope) => !isTokenScope(scope));
  if (unknown !== undefined) throw usageError(`--scope ${unknown} is not one of ${TOKEN_SCOPES.join(', ')}, all`);
  return scopes;
};

const UNIT_MS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** Reads `90d`, a time, or `never`. @internal exported for its test */
export function timeIn(text: string, nowMs: number): string | null {
  if (text === 'never') return null;
  const [, digits, unit = ''] = /^([0-9]{1,6})([mhdw])$/.exec(text) ?? [];
  const atMs = digits === undefined ? Date.parse(text) : nowMs + Number(digits) * (UNIT_MS[unit] ?? 0);
  if (Number.isNaN(atMs)) throw usageError(`--expires ${text} is no time: give 90d, 12h, 2030-01-31 or never`);
  return new Date(atMs).toISOString();
}

async function appIdOf(client: Client, { app = 'all', workspace }: TokenUpdateFlags): Promise<string | null> {
  if (app === 'all') return null;
  const query = new URLSearchParams({ name: app, limit: '1000' });
  const id = await workspaceIdOf(client, workspace);
  const apps = listField(await client.rest(`/app/${id}?${query.toString()}`), 'data');
  const found = apps.find((one) => textField(one, 'name') === app);
  if (found !== undefined) return textField(found, 'id');
  if (isUuid(app)) return app.toLowerCase();
  throw notFound(`there is no app ${app} in this workspace: \`longshore deployment list\` shows what there is`);
}

/** Limits of a token beside its type, in a word. */
function limitsOf(token: JsonObject): string {
  const scopes = textsField(token, 'scopes').join('+') || 'all';
  const app = textField(token, 'app_id');
  return app === '' ? scopes : `${scopes} in app ${app}`;
}

const agoOf = (time: string, nowMs: number): string => (time === '' ? 'never' : `${ageOf(time, nowMs)} ago`);

function expiryOf(time: string, nowMs: number): string {
  if (time === '') return 'never';
  return Date.parse(time) <= nowMs ? 'expired' : `in ${durationOf(new Date(nowMs).toISOString(), time, nowMs)}`;
}

export async function runTokenToggle(reference: string, flags: TokenVerbFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await idOf(client, reference, flags);
    mustNotBeOwn(id, client.context.token, flags, 'switch off');
    const answer = await client.gateway('POST', `/tokens/${encodeURIComponent(id)}/toggle`).catch(unknownToken(id));
    const token = objectField(answer, 'token');
    showDone(invocation, token, [`token ${id} is ${token['active'] === true ? 'active again' : 'switched off'}`]);
  });
}

export async function runTokenDelete(reference: string, flags: TokenVerbFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await idOf(client, reference, flags);
    mustNotBeOwn(id, client.context.token, flags, 'delete');
    const path = `${await tokensPath(client, flags)}/${encodeURIComponent(id)}`;
    await client.restCall('DELETE', path).catch(unknownToken(id));
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
    if (!(error instanceof CliError)) throw error;
    if (error.status !== 404 && !error.message.startsWith('Unable to toggle token')) throw error;
    throw noToken(id, error);
  };
}

const noToken = (id: string, cause?: unknown): CliError =>
  notFound(`there is no token ${id} to change: \`longshore token list\` shows them`, cause);
