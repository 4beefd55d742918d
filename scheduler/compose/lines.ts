// The queues of asynchronous tasks, the lines of synchronous ones, and the callers who wait at this replica; with other
// replicas, the ways by which synchronous tasks cross (tasks/lines/).
import type { InstanceId } from '#shared/domain/ids.ts';
import { isSyncKind } from '../workspaces/deployments/kinds.ts';
import { Replies } from '../tasks/dispatch/replies.ts';
import type { CrossingParts } from '../tasks/lines/crossing.ts';
import { Crossing } from '../tasks/lines/crossing.ts';
import type { LinesParts } from '../tasks/lines/lines.ts';
import { Lines } from '../tasks/lines/lines.ts';
import type { MovesParts } from '../tasks/lines/moves.ts';
import { Moves } from '../tasks/lines/moves.ts';
import type { OthersParts } from '../tasks/lines/others.ts';
import { Others } from '../tasks/lines/others.ts';
import type { QuestionsParts } from '../tasks/lines/questions.ts';
import { Questions } from '../tasks/lines/questions.ts';
import { ALONE } from '../cluster/bus.ts';
import { openTaskQueues } from '../stores/queues/bullmq.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';
import type { Keys } from '../stores/queues/keys.ts';
import { taskById } from '../stores/store/queries/tasks.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';

export interface LineParts {
  /** Queues of asynchronous tasks. */
  readonly queues: TaskQueues;
  /** Synchronous tasks, with the queues behind them. */
  readonly lines: Lines;
  /** Callers who wait at this replica. */
  readonly replies: Replies;
}

export function buildLines(parts: LinesParts): LineParts {
  const lines = new Lines(parts);
  const replies = new Replies();
  replies.onLeft((taskId) => lines.leave(taskId));
  return { queues: parts.queues, lines, replies };
}

export async function openLines(
  { hot: client, keys, instance, stall, log }: Infrastructure,
  { presence }: ClusterState,
): Promise<LineParts> {
  const queues = await openTaskQueues({ client, log, prefix: keys.prefix });
  const isPresent = (replica: InstanceId): boolean => presence.isAlive(replica);
  return buildLines({
    queues,
    instance,
    isPresent,
    stalledAtMs: () => later(stall.stalledAtMs(), presence.lapsedAtMs),
  });
}

const later = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? (a ?? b) : Math.max(a, b);

/** Questions to other rooms that the ways between replicas need. */
export interface PeerNeeds
  extends
    Pick<CrossingParts, 'bus' | 'capacity' | 'isPresent' | 'isSettled' | 'runsAt'>,
    Pick<OthersParts, 'present' | 'staleMs'>,
    Pick<MovesParts, 'linkOf' | 'isSync'>,
    Pick<QuestionsParts, 'silentMs'> {}

/** Parts of this replica that cross. */
export interface Peers {
  readonly others: Others;
  readonly crossing: Crossing;
  readonly moves: Moves;
  readonly questions: Questions;
}

/** Parts of the path of tasks that the ways between replicas need. */
export type PeerParts = Omit<CrossingParts, keyof PeerNeeds | 'channelOf' | 'others'> &
  Omit<MovesParts, keyof PeerNeeds | 'channelOf'> &
  Omit<QuestionsParts, keyof PeerNeeds | 'channelOf' | 'channel' | 'moves'> & { readonly keys: Keys };

/** Connects the lines of this replica with those of the others. */
export function joinPeers(needs: PeerNeeds, parts: PeerParts): Peers {
  const { keys, lines } = parts;
  const all = { ...needs, ...parts, channelOf: keys.linesChannel };
  const others = new Others({ ...all, channel: keys.lineCountsChannel });
  const crossing = new Crossing({ ...all, others });
  const moves = new Moves(all);
  const questions = new Questions({ ...all, moves, channel: keys.lineQuestionsChannel });
  lines.connect(others, (to, job, word) => crossing.say(to, job, word));
  return { others, crossing, moves, questions };
}

/** A process that has no others. */
export const NO_PEERS: PeerNeeds = {
  bus: ALONE,
  capacity: () => new Map(),
  isPresent: () => false,
  present: () => [],
  isSettled: () => true,
  runsAt: () => Promise.resolve(null),
  linkOf: () => undefined,
  isSync: () => false,
};

export function peerNeeds({ db, instance }: Infrastructure, clusterState: ClusterState): PeerNeeds {
  const { bus, isAlone, presence, containers, machines, remoteCapacity } = clusterState;
  const isSync: PeerNeeds['isSync'] = (containerId) => isSyncKind(containers.get(containerId)?.spec.kind ?? '');
  const linkOf: PeerNeeds['linkOf'] = (machineId) => {
    const machine = machines.get(machineId);
    if (machine === undefined) return undefined;
    const { replica, sessionEpoch } = machine.row;
    return { replica, sessionEpoch, isHere: machine.sessionId !== undefined && replica === instance };
  };
  if (isAlone) return { ...NO_PEERS, isSync, linkOf };
  return {
    bus,
    capacity: (queue) => remoteCapacity.of(queue),
    isPresent: (replica) => presence.isAlive(replica),
    present: () => presence.others(),
    isSettled: (replica) => {
      for (const { row, health } of machines.all()) if (row.replica === replica && health !== 'LOST') return false;
      return true;
    },
    runsAt: async (taskId) => {
      const task = await taskById(db, taskId);
      if (task?.status !== 'RUNNING' || task.containerId === null) return null;
      const machineId = (await containers.rowOf(task.containerId))?.machineId ?? null;
      return machineId === null ? null : (machines.get(machineId)?.row.replica ?? null);
    },
    linkOf,
    isSync,
  };
}
