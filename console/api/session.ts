// Who is signed in: the session of this browser, and what its token may do. Screens draw only what it may.
import { computed, signal } from '@preact/signals';
import type { BegunSession, ConsoleSession, SessionRecord } from '#shared/api/rest/session.ts';
import type { WorkspaceList } from '#shared/api/rest/workspaces.ts';
import type { Static } from 'typebox';
import { segmentAmong, workspaceAmong } from '../parts/segments.ts';
import type { NamedWorkspace } from '../parts/segments.ts';
import { ApiError, forgetKey, keepKey, keyOf, rest, send, sessionEnd } from './client.ts';

export interface SignedIn {
  readonly facts: SessionRecord;
  readonly session: ConsoleSession;
}

/** undefined: not asked yet; null: not signed in. */
export const signedIn = signal<SignedIn | null | undefined>(undefined);
/** Why the last session ended; empty: nobody knows, or nothing ended. */
export const endedBecause = signal('');

/** Workspaces that the token may name; those of an administrator are read at the sign-in, and with their screen. */
export const workspaces = signal<readonly NamedWorkspace[]>([]);

/** Rights of the token: routes such as `GET /task/{ws}`. */
const rights = computed(() => new Set(signedIn.value?.facts.rights ?? []));
export const may = (route: string): boolean => rights.value.has(route);

/** Where everything but the console is; undefined: at the address of the console, too. */
export const apiUrl = (): string | undefined => signedIn.value?.facts.domains.api_url ?? undefined;

/** Whether the token may call deployments of an app in a workspace. A call is one in the token's own workspace. */
export function mayInvoke(workspaceId: string, appId: string): boolean {
  const facts = signedIn.value?.facts;
  if (facts === undefined || facts.workspace.id !== workspaceId || !hasScope('invoke')) return false;
  return facts.token.app_id === null || facts.token.app_id === appId;
}

/** The same of models, which belong to no app. */
export const mayCallModels = (workspaceId: string): boolean => mayInvoke(workspaceId, '');

/** Whether the token may open shells in containers of a workspace: full tokens of it, and administrators. */
export function mayReach(workspaceId: string): boolean {
  const facts = signedIn.value?.facts;
  if (facts === undefined || facts.token.token_type === 'workspace_restricted') return false;
  const isLimited = facts.token.scopes.length > 0 || facts.token.app_id !== null;
  return !isLimited && (facts.is_admin || facts.workspace.id === workspaceId);
}

function hasScope(scope: string): boolean {
  const scopes = signedIn.value?.facts.token.scopes ?? [];
  return scopes.length === 0 || scopes.some((one) => one === scope);
}

/** Looks whether this browser has a session. @throws ApiError but for a refusal */
export async function look(): Promise<void> {
  const key = keyOf();
  if (key === null) {
    signedIn.value = null;
    return;
  }
  try {
    const session = (await (await send('/session')).json()) as ConsoleSession;
    const facts = await rest<SessionRecord>('/session');
    const before = signedIn.value?.session.id;
    // Another tab signed in anew: what this page holds is of the session before.
    if (before !== undefined && before !== session.id) return location.reload();
    signedIn.value = { session, facts };
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    return await over(key);
  }
  await readWorkspaces();
}

/** Begins a session by the code of a link, or by a token that is forgotten at once. @throws ApiError */
export async function signIn(by: { readonly code: string } | { readonly token: string }): Promise<void> {
  const begun = (await (await send('/session', { method: 'POST', body: by })).json()) as BegunSession;
  keepKey(begun.key);
  endedBecause.value = '';
  await look();
}

export async function signOut(): Promise<void> {
  const key = keyOf();
  // A session that the scheduler does not know any more is over as well.
  await send('/session', { method: 'DELETE' }).catch(() => undefined);
  await over(key, '');
}

/** Forgets a session that is over. Where another tab has begun a new one meanwhile, that one is looked at. */
async function over(key: string | null, why = 'the session is over, or its token was switched off'): Promise<void> {
  if (keyOf() !== key) return await look();
  if (signedIn.value !== null && signedIn.value !== undefined) endedBecause.value = why;
  forgetKey();
  signedIn.value = null;
}

let looking: Promise<void> | undefined;

// A refusal may be late, and of the session before: the session that is there now is asked for by itself.
sessionEnd.tell = () => {
  looking ??= look()
    .catch(() => undefined)
    .finally(() => (looking = undefined));
};

async function readWorkspaces(): Promise<void> {
  const facts = signedIn.value?.facts;
  if (facts === undefined) return;
  workspaces.value = [facts.workspace];
  if (!may('GET /workspace')) return;
  await allWorkspaces().catch(() => undefined);
}

/** All workspaces, which addresses can name from then on. @throws ApiError */
export async function allWorkspaces(signal?: AbortSignal): Promise<Static<typeof WorkspaceList>> {
  const list = await rest<Static<typeof WorkspaceList>>('/workspace?limit=1000', { signal });
  workspaces.value = list.data.map(({ id, name }) => ({ id, name }));
  return list;
}

/** The part of an address that names a workspace: its name, where no other has it. */
export const segmentOf = (one: NamedWorkspace): string => segmentAmong(workspaces.value, one);

/** The workspace that a part of an address names; undefined: the token sees none of that name. */
export const workspaceAt = (segment: string): NamedWorkspace | undefined => workspaceAmong(workspaces.value, segment);
