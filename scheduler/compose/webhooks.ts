// Messages to addresses that people named: the guard, the queue and worker of this replica, and the kinds of messages.
import type { ObjectId } from '#shared/domain/ids.ts';
import type { Part } from '#shared/lifecycle.ts';
import { TASK_CALLBACK, taskCallbacks } from '../tasks/webhooks/callbacks.ts';
import { Deliveries } from '../tasks/webhooks/deliveries.ts';
import { urlProblem } from '../tasks/webhooks/guard.ts';
import { DeliveryMetrics } from '../tasks/webhooks/metrics.ts';
import type { OpenNetworks } from '../tasks/webhooks/open-networks.ts';
import { Lookups } from '../tasks/webhooks/lookups.ts';
import { POST_DEADLINES, Poster } from '../tasks/webhooks/post.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Identity } from './identity.ts';
import type { ObjectParts } from './objects.ts';
import type { RuntimeSettingParts } from './runtime-settings.ts';

export interface Webhooks {
  readonly deliveries: Deliveries;
  /** Counts waiting deliveries, at the leader. */
  readonly counting: Part;
  /** Addresses that may be dialled, and the look-ups of names that all messages share. */
  readonly rules: OpenNetworks;
  readonly lookups: Lookups;
  /** Why nothing can be sent to a URL, as text behind a field's name; undefined: sending may be tried. */
  readonly urlProblem: (url: string) => string | undefined;
}

const COUNT_MS = 5_000;

export function openWebhooks(
  { db, keys, clock, log, registry }: Infrastructure,
  { signingKeyOf }: Identity,
  { bus, leader, leaderLoop }: ClusterState,
  { bodies }: ObjectParts,
  { rules }: Pick<RuntimeSettingParts, 'rules'>,
): Webhooks {
  const loadResult = (id: ObjectId): Promise<string | undefined> => bodies.loadResult(id);
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
  return { deliveries, counting, rules, lookups, urlProblem: (url) => urlProblem(url, rules) };
}
