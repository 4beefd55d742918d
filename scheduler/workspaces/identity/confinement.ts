// Limits of a token beside its type: scopes, and a single app. They are in the entry of the token cache, so judging a
// call reads nothing. A route or operation allows limited tokens only where it says so: a new one is closed to them.
import type { AppId, PutBy } from '#shared/domain/ids.ts';
import type { TokenScope } from '#shared/domain/token-scopes.ts';
import type { Caller } from './caller.ts';

export interface Confinement {
  /** Empty: everything that the token's type may do. */
  readonly scopes: readonly TokenScope[];
  /** The only app for which the token counts; absent: any. */
  readonly appId?: AppId;
}

/** Rights of limited tokens on a route or operation. */
export interface Grants {
  /** Scopes that may call it. Absent: none. */
  readonly scopes?: readonly TokenScope[];
  /** Whether its handler shows and changes nothing outside the caller's app. Absent: no. */
  readonly confinesToApp?: boolean;
}

/** Why a limited token may not call; undefined: it may, or it is not limited. */
export function confinementProblem({ confined }: Pick<Caller, 'confined'>, grants: Grants): string | undefined {
  if (confined === undefined) return undefined;
  const { scopes, appId } = confined;
  if (scopes.length > 0 && !scopes.some((scope) => grants.scopes?.includes(scope) === true)) {
    return `this token has the scope ${scopes.join(' and ')} alone`;
  }
  if (appId !== undefined && grants.confinesToApp !== true) return 'this token counts for one app alone';
  return undefined;
}

/** Why the caller may not invoke a target of that app; undefined: it may. */
export function invokeProblem({ confined }: Pick<Caller, 'confined'>, appId: AppId): string | undefined {
  if (confined === undefined) return undefined;
  if (confined.scopes.length > 0 && !confined.scopes.includes('invoke')) {
    return 'this token may not invoke: it lacks the scope invoke';
  }
  return confined.appId === undefined || confined.appId === appId
    ? undefined
    : 'this token counts for another app alone';
}

/** Whether the caller sees only tasks that it put itself. */
export const seesOwnTasksOnly = ({ confined }: Pick<Caller, 'confined'>): boolean =>
  confined !== undefined && confined.scopes.length > 0 && !confined.scopes.includes('read');

/** The sender of a task that may read it again, where it reads no others: a container's stub, or a limited token. */
export const putByOf = (caller: Pick<Caller, 'confined' | 'container' | 'tokenId'> | null): PutBy | undefined =>
  caller?.container?.stubId ?? (caller !== null && seesOwnTasksOnly(caller) ? caller.tokenId : undefined);

/** Filter by the only app whose things the caller sees; empty: all of the workspace. */
export const ownApp = ({ confined }: Pick<Caller, 'confined'>): { readonly appId?: AppId } =>
  confined?.appId === undefined ? {} : { appId: confined.appId };

/** Whether something of that app is hidden from the caller. */
export const isOutside = ({ confined }: Pick<Caller, 'confined'>, appId: string | null | undefined): boolean =>
  confined?.appId !== undefined && confined.appId !== appId;
