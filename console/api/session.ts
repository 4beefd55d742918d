// Who is signed in: the session of this browser, and what its token may do. Screens draw only what it may.
import { computed, signal } from '@preact/signals';
import type { BegunSession, ConsoleSession, SessionRecord } from '#shared/api/rest/session.ts';
import type { WorkspaceList } from '#shared/api/rest/workspaces.ts';
import type { Static } from 'typebox';
import { ApiError, forgetKey, keepKey, keyOf, rest, send, sessionEnd } from './client.ts';

export interface SignedIn {
  readonly facts: SessionRecord;
  readonly session: ConsoleSession;
}

/** undefined: not asked yet; null: not signed in. */
export const signedIn = signal<SignedIn | null | undefined>(undefined);
/** Why the last session ended; empty: nobody knows, or nothing ended. */
export const endedBecause = signal('');

interface NamedWorkspace {
  readonly id: string;
  readonly name: string;
}
/** Workspaces that the token may name; those of an administrator are read once. */
export const workspaces = signal<readonly NamedWorkspace[]>([]);

/** Rights of the token: routes such as `GET /task/{ws}`. */
const rights = computed(() => new Set(signedIn.value?.facts.rights ?? []));
export const may = (route: string): boolean => rights.value.has(route);

/** Whether the token may call deployments of an app in a workspace. A call is one in the token's own workspace. */
export function mayInvoke(workspaceId: string, appId: string): boolean {
  const facts = signedIn.value?.facts;
  if (facts === undefined || facts.workspace.id !== workspaceId || !hasScope('invoke')) return false;
  return facts.token.app_id === null || facts.token.app_id === appId;
}

/** Whether the token may call models, which belong to no app. */
export const mayCallModels = (): boolean => hasScope('invoke') && signedIn.value?.facts.token.app_id === null;

function hasScope(scope: string): boolean {
  const scopes = signedIn.value?.facts.token.scopes ?? [];
  return scopes.length === 0 || scopes.some((one) => one === scope);
}

/** Looks whether this browser has a session. */
export async function look(): Promise<void> {
  if (keyOf() === null) {
    signedIn.value = null;
    return;
  }
  try {
    const session = (await (await send('/session')).json()) as ConsoleSession;
    signedIn.value = { session, facts: await rest<SessionRecord>('/session') };
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
    over();
    return;
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
  // A session that the scheduler does not know any more is over as well.
  await send('/session', { method: 'DELETE' }).catch(() => undefined);
  over('');
}

/** Forgets the session, because the scheduler refused it. */
function over(why = 'the session is over, or its token was switched off'): void {
  if (signedIn.value !== null && signedIn.value !== undefined) endedBecause.value = why;
  forgetKey();
  signedIn.value = null;
}

sessionEnd.tell = () => over();

async function readWorkspaces(): Promise<void> {
  const facts = signedIn.value?.facts;
  if (facts === undefined) return;
  workspaces.value = [facts.workspace];
  if (!may('GET /workspace')) return;
  const list = await rest<Static<typeof WorkspaceList>>('/workspace?limit=1000').catch(() => undefined);
  if (list === undefined) return;
  workspaces.value = list.data.map(({ id, name }) => ({ id, name }));
}

/** The part of an address that names a workspace: its name, where no other has it. */
export function segmentOf({ id, name }: NamedWorkspace): string {
  const same = workspaces.value.filter((one) => one.name === name);
  return name === '' || same.length > 1 ? id : name;
}

/** The workspace that a part of an address names; undefined: the token sees none of that name. */
export const workspaceAt = (segment: string): NamedWorkspace | undefined =>
  workspaces.value.find((one) => one.id === segment) ?? workspaces.value.find((one) => one.name === segment);
