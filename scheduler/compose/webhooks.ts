// Messages to addresses that people named: the guard, the queue and worker of this replica, and the kinds of messages.
import type { ObjectId } from '#shared/domain/ids.ts';
import type { Part } from '#shared/lifecycle.ts';
import { StartupError } from '#shared/errors.ts';
import { InstallationTrail } from '../workspaces/events/installation-trail.ts';
import { RuntimeSettings } from '../workspaces/identity/runtime-settings.ts';
import { TASK_CALLBACK, taskCallbacks } from '../tasks/webhooks/callbacks.ts';
import { Deliveries } from '../tasks/webhooks/deliveries.ts';
import { urlProblem } from '../tasks/webhooks/guard.ts';
import { DeliveryMetrics } from '../tasks/webhooks/metrics.ts';
import { networksProblem, OpenNetworks } from '../tasks/webhooks/open-networks.ts';
import { ownPorts } from '../tasks/webhooks/own-ports.ts';
import { Lookups } from '../tasks/webhooks/lookups.ts';
import { POST_DEADLINES, Poster } from '../tasks/webhooks/post.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Events } from './events.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Identity } from './identity.ts';
import type { ObjectParts } from './objects.ts';

export interface Webhooks {
  readonly deliveries: Deliveries;
  /** Counts waiting deliveries, at the leader. */
  readonly counting: Part;
  /** Addresses that may be dialled, and the look-ups of names that all messages share. */
  readonly rules: OpenNetworks;
  readonly runtimeSettings: RuntimeSettings;
  readonly lookups: Lookups;
  /** Why nothing can be sent to a URL, as text behind a field's name; undefined: sending may be tried. */
  readonly urlProblem: (url: string) => string | undefined;
}

const COUNT_MS = 5_000;

/** @throws StartupError `bad_config` */
export function openWebhooks(
  { db, keys, clock, log, registry, settings }: Infrastructure,
  { signingKeyOf, invalidation }: Identity,
  { bus, leader, leaderLoop }: ClusterState,
  { bodies }: ObjectParts,
  { writer: events }: Pick<Events, 'writer'>,
): Webhooks {
  const loadResult = (id: ObjectId): Promise<string | undefined> => bodies.loadResult(id);
  const environment = settings.LONGSHORE_WEBHOOK_ALLOW;
  const problem = networksProblem(environment);
  if (problem !== undefined)
    throw new StartupError('bad_config', `settings are wrong:\n  LONGSHORE_WEBHOOK_ALLOW: ${problem}`);
  const rules = new OpenNetworks(environment, ownPorts(settings));
  const runtimeSettings = new RuntimeSettings({
    db,
    invalidation,
    trail: new InstallationTrail(db, events, () => clock.nowMs()),
    log,
    kinds: {
      webhook_allow: {
        environment,
        variable: 'LONGSHORE_WEBHOOK_ALLOW',
        description: 'networks that are not public, to which callbacks, webhooks and requests to model servers may go',
        problem: networksProblem,
        apply: (networks) => rules.set(networks),
      },
    },
  });
  const lookups = new Lookups();
  const metrics = new DeliveryMetrics(registry);
  const deliveries = new Deliveries({
    db,
    poster: new Poster(rules, POST_DEADLINES, lookups),
    kinds: {
      [TASK_CALLBACK]: taskCallbacks({ db, clock, signingKeyOf, loadResult }),
    },
    metrics,
    clock,
    log,
    tellOthers: () => bus.publish(keys.deliveriesChannel, null),
  });
  bus.on(keys.deliveriesChannel, () => deliveries.wake());
  leader.onChange(({ kind }) => kind === 'leading' || metrics.waiting.reset());
  const counting = leaderLoop({
    name: 'deliveries that wait',
    everyMs: COUNT_MS,
    round: () => deliveries.count(),
    failed: 'deliveries that wait are counted later',
  });
  return { deliveries, counting, rules, runtimeSettings, lookups, urlProblem: (url) => urlProblem(url, rules) };
}
