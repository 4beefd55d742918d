// Explanations: the replica that was asked gathers them, and asks the leader for facts that only the leader has.
import { ScalingRelay } from '../api/explain/relay.ts';
import { Explain } from '../api/explain/service.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import type { Books } from './books.ts';
import type { Ground } from './ground.ts';
import type { Identity } from './identity.ts';
import type { Lanes } from './lanes.ts';
import type { LinkParts } from './links.ts';
import type { Scaling } from './scaling.ts';
import type { TaskParts } from './tasks.ts';

export interface ExplainSetup {
  readonly ground: Ground;
  readonly identity: Identity;
  readonly books: Books;
  readonly targets: Targets;
  readonly lanes: Lanes;
  readonly taskParts: TaskParts;
  readonly scaling: Scaling;
  readonly linkParts: LinkParts;
}

export interface ExplainRoom {
  readonly explain: Explain;
  readonly relay: ScalingRelay;
}

/** Opened before the bus starts, which subscribes to the channels named by then. */
export function openExplain(setup: ExplainSetup): ExplainRoom {
  const { ground, identity, books, targets, lanes, taskParts, scaling, linkParts } = setup;
  const relay = new ScalingRelay({
    bus: books.bus,
    channel: ground.keys.explainChannel,
    isLeader: books.isLeader,
    log: ground.log,
  });
  const explain = new Explain({
    ...ground,
    ...books,
    refusalOf: (target) => books.servable.refusal(target),
    limits: identity.limits,
    usage: linkParts.usage,
    placer: scaling.placer,
    autoscaler: scaling.autoscaler,
    targets,
    queues: lanes.queues,
    tasks: taskParts.reads,
    scaling: (queue) => relay.scaling(queue),
  });
  return { explain, relay };
}
