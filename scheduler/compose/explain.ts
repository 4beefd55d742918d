// Explanations: the replica that was asked gathers them, and asks the leader for facts that only the leader has.
import type { Log } from '#shared/log.ts';
import type { Bus } from '../cluster/bus.ts';
import { ScalingRelay } from '../api/explain/relay.ts';
import { Explain } from '../api/explain/service.ts';
import type { ExplainParts } from '../api/explain/service.ts';

export interface ExplainSetup extends Omit<ExplainParts, 'scaling'> {
  readonly bus: Bus;
  readonly channel: string;
  readonly isLeader: () => boolean;
  readonly log: Log;
}

/** Opened before the bus starts, which subscribes to the channels named by then. */
export function openExplain({ bus, channel, isLeader, log, ...parts }: ExplainSetup): Explain {
  const relay = new ScalingRelay({ bus, channel, isLeader, log, explain: (queue) => explain.scalingOf(queue) });
  const explain: Explain = new Explain({ ...parts, scaling: (queue) => relay.scaling(queue) });
  return explain;
}
