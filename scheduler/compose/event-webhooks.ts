// Webhooks: the service behind their routes, on every replica, and the pump of their deliveries, on the leader.
import type { Part } from '#shared/lifecycle.ts';
import { OF_ONE_WEBHOOK } from '../tasks/event-webhooks/lane.ts';
import { EventWebhookMetrics } from '../tasks/event-webhooks/metrics.ts';
import { WebhookPump } from '../tasks/event-webhooks/pump.ts';
import { Receivers } from '../tasks/event-webhooks/receivers.ts';
import { WebhookSecrets } from '../tasks/event-webhooks/secrets.ts';
import { WebhookService } from '../tasks/event-webhooks/service.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Events } from './events.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Webhooks } from './webhooks.ts';

export interface EventWebhooks {
  readonly service: WebhookService;
  readonly pump: WebhookPump;
  /** The pump with everything that it sends by; stopped as one. */
  readonly part: Part;
}

export function openEventWebhooks(
  { db, clock, log, registry }: Infrastructure,
  { sealer, limits }: Identity,
  { leader }: ClusterState,
  { rules, lookups }: Webhooks,
  { writer: events }: Pick<Events, 'writer'>,
): EventWebhooks {
  const receivers = new Receivers({
    rules,
    lookups,
    monotonicMs: () => clock.monotonicMs(),
    connections: OF_ONE_WEBHOOK,
  });
  const metrics = new EventWebhookMetrics(registry);
  const secrets = new WebhookSecrets(db, sealer, clock);
  const pump = new WebhookPump({ db, receivers, secrets, metrics, clock, log, leader });
  const mostOf: ConstructorParameters<typeof WebhookService>[0]['mostOf'] = async (workspaceId) =>
    (await limits.of(workspaceId)).counts.webhooks;
  const service = new WebhookService({ db, events, rules, receivers, secrets, metrics, clock, mostOf });
  return {
    service,
    pump,
    part: {
      name: pump.name,
      start: () => pump.start(),
      stop: async () => {
        service.stop();
        await pump.stop();
        await receivers.close();
      },
    },
  };
}
