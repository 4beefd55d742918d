// Events of the audit trail: who changed what, and from where. An event holds ids and names, and never the value of a
// secret or a token. Filters match these types only by name (`audit.*`), and administrators and primary tokens alone
// read them. Source: decision 0204.
import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import type { EventSubject } from '../../stores/store/queries/events.ts';
import type { Caller } from '../identity/caller.ts';
import type { TokenType } from '../../stores/store/queries/tokens.ts';
import type { EventGiven } from './writer.ts';

/** The person or program behind a change. */
export interface Actor {
  /** null: the installation itself. */
  readonly tokenId: TokenId | null;
  readonly tokenType: TokenType | 'system';
  readonly tokenName: string;
  readonly remoteAddress: string;
  /** As the caller sent it, cut. */
  readonly userAgent: string;
  readonly requestId: string;
  /** Whether a person did it in the web console; absent: no. */
  readonly via?: 'console';
}

/** The installation itself: its start, its files, `longshore up`. */
export const SYSTEM: Actor = {
  tokenId: null,
  tokenType: 'system',
  tokenName: '',
  remoteAddress: '',
  userAgent: '',
  requestId: '',
};

/** Where a request came from. */
export type RequestFacts = Pick<Actor, 'remoteAddress' | 'userAgent' | 'requestId'>;

/** The caller of an operation or route, as the trail names it. A container's credential is named by the container. */
export const actorOf = (
  caller: Pick<Caller, 'tokenId' | 'type' | 'name' | 'container' | 'console'>,
  from: RequestFacts,
): Actor => ({
  tokenId: caller.tokenId,
  tokenType: caller.type,
  tokenName: caller.name ?? caller.container?.containerId ?? '',
  ...(caller.console === undefined ? {} : { via: 'console' }),
  ...from,
});

const MOST_USER_AGENT = 200;
const MOST_TEXT = 200;

/** Cuts what a caller sent, and leaves out control characters. */
export const bounded = (text: string, most: number = MOST_USER_AGENT): string =>
  text.replace(/\p{Cc}/gu, ' ').slice(0, most);

export const AUDIT_PREFIX = 'audit.';

/** Kinds of the audit trail. Each is a change that somebody made by a call, or a secret that somebody read. */
export const AUDIT_KINDS = [
  'audit.token.created',
  'audit.token.updated',
  'audit.token.toggled',
  'audit.token.deleted',
  'audit.secret.created',
  'audit.secret.updated',
  'audit.secret.deleted',
  'audit.secret.read',
  'audit.limits.updated',
  'audit.share.updated',
  'audit.credit.updated',
  'audit.credit.granted',
  'audit.deployment.created',
  'audit.deployment.started',
  'audit.deployment.stopped',
  'audit.deployment.scaled',
  'audit.deployment.queue_controlled',
  'audit.deployment.deleted',
  'audit.deployment.rolled_back',
  'audit.webhook.created',
  'audit.webhook.updated',
  'audit.webhook.rotated',
  'audit.webhook.deleted',
  'audit.model.created',
  'audit.model.updated',
  'audit.model.deleted',
  'audit.pool.created',
  'audit.pool.updated',
  'audit.pool.deleted',
  'audit.machine.created',
  'audit.machine.deleted',
  'audit.machine.cordoned',
  'audit.machine.uncordoned',
  'audit.machine.drained',
  'audit.machine.labelled',
  'audit.machine.gpu_excluded',
  'audit.machine.gpu_returned',
  'audit.machine.gpu_reset',
  'audit.machine.gpu_forgotten',
  'audit.enrolment_token.created',
  'audit.enrolment_token.revoked',
  'audit.workspace.created',
  'audit.workspace.deleted',
  'audit.signing_key.created',
  'audit.signing_key.retired',
  'audit.setting.updated',
  'audit.container.preempted',
  'audit.recording.started',
  'audit.recording.stopped',
  'audit.session.began',
  'audit.session.ended',
] as const;
export type AuditKind = (typeof AUDIT_KINDS)[number];

export interface Audited extends EventSubject {
  /** The workspace whose trail it is. */
  readonly workspaceId: WorkspaceId;
  /** The changed thing. */
  readonly target: { readonly type: string; readonly id: string; readonly name?: string };
  /** Facts of the change; no secrets. */
  readonly attrs?: Readonly<Record<string, string | number | boolean | null>>;
}

/** An event of the audit trail, for the transaction that makes the change. */
export function auditEvent(by: Actor, type: AuditKind, audited: Audited, atMs: number): EventGiven {
  const { workspaceId, target, attrs = {}, ...subject } = audited;
  return {
    ...subject,
    workspaceId,
    type,
    atMs,
    data: {
      action: type.slice(AUDIT_PREFIX.length),
      actor: {
        token_id: by.tokenId,
        token_type: by.tokenType,
        token_name: by.tokenName,
        remote_ip: by.remoteAddress,
        user_agent: by.userAgent,
        request_id: by.requestId,
        ...(by.via === undefined ? {} : { via: by.via }),
      },
      target: { type: target.type, id: target.id, name: bounded(target.name ?? '', MOST_TEXT) },
      attrs,
    },
  };
}
