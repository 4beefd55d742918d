// Identity: the installation's keys, workspaces with their tokens, limits and secrets. Also the channel by which
// replicas tell each other that one of these has changed.
import type { ContainerId, WorkspaceId } from '#shared/domain/ids.ts';
import { ClosedWorkspaces } from '../workspaces/identity/closed-workspaces.ts';
import type { Installation } from '../workspaces/identity/installation.ts';
import { openInstallation } from '../workspaces/identity/installation.ts';
import type { Invalidation } from '../workspaces/identity/invalidation.ts';
import { InferenceRates } from '../workspaces/identity/inference-rates.ts';
import { createInvalidation } from '../workspaces/identity/invalidation.ts';
import { ConsoleSessions } from '../workspaces/identity/console-sessions.ts';
import { IdentityMetrics } from '../workspaces/identity/metrics.ts';
import { Rates } from '../workspaces/identity/rates.ts';
import { Refusals } from '../workspaces/identity/refusals.ts';
import { sealAnew } from '../workspaces/identity/seal-anew.ts';
import { TerminalTickets } from '../workspaces/identity/terminal-tickets.ts';
import { Tenants } from '../workspaces/identity/tenants.ts';
import { TokenAdmin } from '../workspaces/identity/token-admin.ts';
import { TokenUses } from '../workspaces/identity/token-uses.ts';
import type { Tokens } from '../workspaces/identity/tokens.ts';
import { createTokens } from '../workspaces/identity/tokens.ts';
import { Shares } from '../workspaces/identity/shares.ts';
import { Limits } from '../workspaces/identity/workspace-limits.ts';
import { signingKeyOf } from '../workspaces/identity/workspaces.ts';
import type { Sealer } from '../workspaces/secrets/seal.ts';
import { openSealer } from '../workspaces/secrets/seal.ts';
import { InstallationTrail } from '../workspaces/events/installation-trail.ts';
import { Secrets } from '../workspaces/secrets/service.ts';
import { workspaceById } from '../stores/store/queries/workspaces.ts';
import type { ContainerCredentials } from '../fleet/containers/credentials.ts';
import type { Events } from './events.ts';
import type { Infrastructure } from './infrastructure.ts';

export interface Identity {
  readonly sealer: Sealer;
  readonly installation: Installation;
  readonly invalidation: Invalidation;
  readonly limits: Limits;
  readonly shares: Shares;
  /** Workspaces that are being deleted. */
  readonly closed: ClosedWorkspaces;
  /** Rates of workspaces' requests, and counts of refused tokens; absent: not counted. */
  readonly rates?: Rates;
  readonly refusals?: Refusals;
  /** Rates of requests to models. */
  readonly inferenceRates: InferenceRates;
  /** Tickets of the web console's terminals. */
  readonly terminalTickets: TerminalTickets;
  readonly tenants: Tenants;
  readonly secrets: Secrets;
  /** Key that signs messages to addresses that a workspace named; undefined: the workspace does not exist. */
  readonly signingKeyOf: (workspaceId: WorkspaceId) => Promise<string | undefined>;
}

/**
 * Opens the installation, and seals values anew that an older key has sealed, where such a key is named.
 * @throws StartupError of the key file
 */
export async function openIdentity(infrastructure: Infrastructure, { writer: events }: Events): Promise<Identity> {
  const { db, general, subscriber, keys, registry, clock, log, settings } = infrastructure;
  const sealer = await openSealer({
    keyFile: settings.LONGSHORE_SECRET_KEY_FILE,
    previousKeyFile: settings.LONGSHORE_SECRET_KEY_FILE_PREVIOUS,
    dataDir: settings.LONGSHORE_DATA_DIR,
  });
  if (settings.LONGSHORE_SECRET_KEY_FILE_PREVIOUS !== undefined) await sealAnew(db, sealer, log);
  const installation = await openInstallation(db, sealer);
  const invalidation = createInvalidation({ publisher: general, subscriber, log, channel: keys.invalidateChannel });
  // A change whose commit was not answered is announced by nobody.
  db.onOutcomeUnknown = () => invalidation.unsure();
  installation.ring.attach(invalidation);
  installation.ring.record(new InstallationTrail(db, events, () => clock.nowMs()));
  const metrics = new IdentityMetrics(registry);
  const limits = new Limits({
    db,
    clock,
    events,
    invalidation,
    maxContainers: settings.LONGSHORE_MAX_CONTAINERS,
    startLimits: {
      startTimeoutSeconds: settings.LONGSHORE_START_TIMEOUT_SECONDS,
      maxStartTimeoutSeconds: Math.max(
        settings.LONGSHORE_START_TIMEOUT_SECONDS,
        settings.LONGSHORE_START_TIMEOUT_MOST_SECONDS,
      ),
    },
  });
  const counted =
    settings.LONGSHORE_RATE_LIMITS === 'off'
      ? {}
      : {
          rates: new Rates({
            redis: general,
            keys,
            clock,
            onLimited: (limit) => metrics.rateLimited.inc({ limit }),
          }),
          refusals: new Refusals(clock, () => metrics.rateLimited.inc({ limit: 'refused_tokens' })),
        };
  return {
    sealer,
    installation,
    invalidation,
    limits,
    shares: new Shares({ db, clock, events, invalidation }),
    closed: new ClosedWorkspaces(db, invalidation, log),
    ...counted,
    inferenceRates: new InferenceRates({
      redis: settings.LONGSHORE_RATE_LIMITS === 'off' ? undefined : general,
      keys,
      limits,
      onLimited: (limit) => metrics.rateLimited.inc({ limit }),
    }),
    terminalTickets: new TerminalTickets(general, keys),
    tenants: new Tenants(db, sealer, installation, clock, events),
    secrets: new Secrets(db, sealer, events),
    signingKeyOf: async (workspaceId) => {
      const workspace = await workspaceById(db, workspaceId);
      return workspace === undefined ? undefined : signingKeyOf(workspace, sealer);
    },
  };
}

export interface TokenParts {
  readonly tokens: Tokens;
  readonly tokenAdmin: TokenAdmin;
  readonly tokenUses: TokenUses;
  readonly consoleSessions: ConsoleSessions;
}

/** The bearer tokens. A container's token is valid as long as the container lives. */
export function openTokens(
  { db, clock, log }: Infrastructure,
  { writer: events }: Events,
  { installation: keys, invalidation, limits, closed }: Identity,
  credentials: Pick<ContainerCredentials, 'isLive'>,
): TokenParts {
  const tokenUses = new TokenUses(db, clock, log);
  const tokens = createTokens({
    db,
    installation: keys,
    invalidation,
    clock,
    isClosed: (id) => closed.has(id),
    isContainerLive: (id: ContainerId, epoch: number) => credentials.isLive(id, epoch),
    onUsed: (tokenId) => tokenUses.used(tokenId),
  });
  const mostOf = async (id: WorkspaceId): Promise<number> => (await limits.of(id)).counts.tokens;
  const consoleSessions = new ConsoleSessions({ db, clock, events, onUsed: (tokenId) => tokenUses.used(tokenId) });
  const tokenAdmin = new TokenAdmin({ db, keys, tokens, events, clock, mostOf });
  return { tokens, tokenUses, tokenAdmin, consoleSessions };
}
