// Messages to addresses that people named: the guard, the queue and worker of this replica, and the kinds of messages.
import type { Redis } from 'ioredis';
import type { Clock } from '#shared/clock.ts';
import type { ObjectId, WorkspaceId } from '#shared/domain/ids.ts';
import { StartupError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Registry } from '#shared/metrics.ts';
import type { SchedulerSettings } from '../config.ts';
import { PlatformQueue } from '../stores/queues/platform-queue.ts';
import type { Keys } from '../stores/queues/keys.ts';
import type { Db } from '../stores/store/db.ts';
import { AddressRules } from '../tasks/webhooks/addresses.ts';
import { TASK_CALLBACK, taskCallbacks } from '../tasks/webhooks/callbacks.ts';
import { Deliveries, DELIVERIES_AT_ONCE } from '../tasks/webhooks/deliveries.ts';
import type { DeliveryJob } from '../tasks/webhooks/deliveries.ts';
import { urlProblem } from '../tasks/webhooks/guard.ts';
import { DeliveryMetrics } from '../tasks/webhooks/metrics.ts';
import { Poster } from '../tasks/webhooks/post.ts';

export interface WebhooksParts {
  readonly db: Db;
  readonly general: Redis;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly log: Log;
  readonly registry: Registry;
  readonly settings: Pick<SchedulerSettings, 'LONGSHORE_WEBHOOK_ALLOW'>;
  readonly isLeader: () => boolean;
  readonly signingKeyOf: (workspaceId: WorkspaceId) => Promise<string | undefined>;
  readonly loadResult: (id: ObjectId) => Promise<string | undefined>;
}

export interface Webhooks {
  readonly deliveries: Deliveries;
  /** Why nothing can be sent to a URL, as text behind a field's name; undefined: sending may be tried. */
  readonly urlProblem: (url: string) => string | undefined;
}

const MOST_JOBS = 10_000;

/** @throws StartupError `bad_config` */
export function openWebhooks(parts: WebhooksParts): Webhooks {
  const { db, general, keys, clock, log, settings, isLeader } = parts;
  const rules = AddressRules.read(settings.LONGSHORE_WEBHOOK_ALLOW);
  if (!(rules instanceof AddressRules)) {
    const text = `settings are wrong:\n  LONGSHORE_WEBHOOK_ALLOW: must be networks such as 10.1.0.0/16, with commas between them, got ${JSON.stringify(rules.wrong)}`;
    throw new StartupError('bad_config', text);
  }
  const deliveries: Deliveries = new Deliveries({
    db,
    queue: new PlatformQueue<DeliveryJob>({
      name: keys.deliveriesQueue,
      prefix: keys.prefix,
      client: general,
      log,
      concurrency: DELIVERIES_AT_ONCE,
      mostJobs: MOST_JOBS,
      process: (job) => deliveries.process(job),
    }),
    poster: new Poster(rules),
    kinds: {
      [TASK_CALLBACK]: taskCallbacks({ db, clock, signingKeyOf: parts.signingKeyOf, loadResult: parts.loadResult }),
    },
    metrics: new DeliveryMetrics(parts.registry),
    clock,
    log,
    isLeader,
  });
  return { deliveries, urlProblem: (url) => urlProblem(url, rules) };
}
