import { ChangeShare, ShareRecord } from '#shared/api/rest/shares.ts';
import type { GivenShareRecord } from '#shared/api/rest/shares.ts';
import { AppError } from '#shared/errors.ts';
import { readShareChange } from '../../../domain/workspace-share.ts';
import type { ShareChange } from '../../../domain/workspace-share.ts';
import type { WorkspaceShare } from '../../../domain/shares.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { Shares, ShareView } from '../../../workspaces/identity/shares.ts';
import { actorBehind } from '../origin.ts';
import { READERS_OF_ALL, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface ShareRouteParts {
  readonly shares: Pick<Shares, 'of' | 'change'>;
  /** Sentences about markets of which more is guaranteed than there is. */
  readonly guaranteeWarnings: () => Promise<readonly string[]>;
}

/** The share of a workspace. PUT changes the named parts, and is for the administrator. */
export function shareRoutes({ shares, guaranteeWarnings }: ShareRouteParts): readonly RestRoute[] {
  const show = async (id: string, caller: Caller, { share, declaredIn }: ShareView): Promise<ShareRecord> => ({
    workspace_id: id,
    ...shareRecord(share),
    declared_in: caller.isAdmin ? declaredIn : null,
    warnings: caller.isAdmin ? [...(await guaranteeWarnings())] : [],
  });
  return [
    restRoute({
      http: 'GET /workspace/{ws}/share',
      grants: READERS_OF_ALL,
      summary: 'Weight, guarantees and limits of a workspace on machines that all share',
      answer: ShareRecord,
      errors: ['workspace_not_found'],
      handle: async ({ workspaceId, caller }) => show(workspaceId, caller, await shares.of(workspaceId)),
    }),
    restRoute({
      http: 'PUT /workspace/{ws}/share',
      summary: 'Change the share of a workspace; null: the default again (administrator)',
      scope: 'admin',
      body: ChangeShare,
      readBody: (sent) => readChange(sent),
      answer: ShareRecord,
      errors: ['workspace_not_found', 'share_declared'],
      handle: async (request) => {
        const { workspaceId, body, caller } = request;
        return show(workspaceId, caller, await shares.change(workspaceId, body, actorBehind(request)));
      },
    }),
  ];
}

export const shareRecord = ({ weight, guaranteed, limits }: WorkspaceShare): GivenShareRecord => ({
  weight,
  guaranteed: { ...guaranteed },
  limits: { ...limits },
});

/** Fields that are only shown; a change that sends them back is not refused for them. */
const SHOWN_ONLY: ReadonlySet<string> = new Set(['workspace_id', 'declared_in', 'warnings']);

function readChange(sent: Readonly<Record<string, unknown>>): ShareChange {
  const said = readShareChange(Object.fromEntries(Object.entries(sent).filter(([name]) => !SHOWN_ONLY.has(name))));
  if (said.kind === 'read') return said.change;
  const [field] = said.problems[0]?.split(' ') ?? [];
  throw new AppError('invalid_body', said.problems.join('; '), { details: { field } });
}
