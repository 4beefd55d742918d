// Messages to addresses that people named: the guard, the queue and worker of this replica, and the kinds of messages.
import type { ObjectId } from '#shared/domain/ids.ts';
import { StartupError } from '#shared/errors.ts';
import { PlatformQueue } from '../stores/queues/platform-queue.ts';
import { InstallationTrail } from '../workspaces/events/installation-trail.ts';
import { RuntimeSettings } from '../workspaces/identity/runtime-settings.ts';
import { TASK_CALLBACK, taskCallbacks } from '../tasks/webhooks/callbacks.ts';
import { Deliveries, DELIVERIES_AT_ONCE } from '../tasks/webhooks/deliveries.ts';
import type { DeliveryJob } from '../tasks/webhooks/deliveries.ts';
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
  /** The alarms of deliveries that are due. */
  readonly queue: PlatformQueue<DeliveryJob>;
  /** Addresses that may be dialled, and the look-ups of names that all messages share. */
  readonly rules: OpenNetworks;
  readonly runtimeSettings: RuntimeSettings;
  readonly lookups: Lookups;
  /** Why nothing can be sent to a URL, as text behind a field's name; undefined: sending may be tried. */
  readonly urlProblem: (url: string) => string | undefined;
}

const MOST_JOBS = 10_000;

/** @throws StartupError `bad_config` */
export function openWebhooks(
  { db, general, keys, clock, log, registry, settings }: Infrastructure,
  { signingKeyOf, invalidation }: Identity,
  { isLeader }: ClusterState,
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
  const queue = new PlatformQueue<DeliveryJob>({
    name: keys.deliveriesQueue,
    prefix: keys.prefix,
    client: general,
    log,
    concurrency: DELIVERIES_AT_ONCE,
    mostJobs: MOST_JOBS,
  });
  const lookups = new Lookups();
  const deliveries = new Deliveries({
    db,
    queue,
    poster: new Poster(rules, POST_DEADLINES, lookups),
    kinds: {
      [TASK_CALLBACK]: taskCallbacks({ db, clock, signingKeyOf, loadResult }),
    },
    metrics: new DeliveryMetrics(registry),
    clock,
    log,
    isLeader,
  });
  return { deliveries, queue, rules, runtimeSettings, lookups, urlProblem: (url) => urlProblem(url, rules) };
}
