// Fate of the attempts of a machine that dialled again, here or at another replica. The replica that sent them
// hands them over with the machine. They are judged by the report with which the present link began, because only that
// report is newer than every order of earlier links (R5). All rules are pure.
import type { InstanceId } from '#shared/domain/ids.ts';

/** Facts that the agent reported when the present link of its machine began. */
export interface LinkReport {
  /** Number of the session; each session of the machine has a higher one. */
  readonly sessionEpoch: number;
  /** Agent process that reported. */
  readonly agentInstance: string;
  /** Attempts that run, or ended without being acknowledged, by the SHA-256 of their tokens. */
  readonly named: ReadonlySet<string>;
}

/** An order that was sent over an earlier link. */
export interface SentOrder {
  /** SHA-256 of the attempt's token. */
  readonly hash: string;
  /** Session over which the order was sent, or in which the agent last named the attempt. */
  readonly sessionEpoch: number;
  /** Agent process that the order was sent to. */
  readonly agentInstance: string;
}

/**
 * Judgement of an order by the report.
 * `later`: the order was sent over this link or a later one, so the report says nothing about it.
 * `never_began`: the same agent process does not have it. Either it never arrived, or its end was acknowledged and is
 * in its row.
 * `lost`: another agent process follows, and does not have it.
 */
export function judgeOrder(order: SentOrder, report: LinkReport): 'named' | 'never_began' | 'lost' | 'later' {
  if (report.sessionEpoch <= order.sessionEpoch) return 'later';
  if (report.named.has(order.hash)) return 'named';
  return report.agentInstance === order.agentInstance ? 'never_began' : 'lost';
}

/** Link of a machine by its row. */
export interface MachineLink {
  readonly replica: InstanceId | null;
  readonly sessionEpoch: number;
}

/** Replica to which an order is handed over; undefined: the order stays here. */
export function heirOf(
  order: Pick<SentOrder, 'sessionEpoch'>,
  machine: MachineLink,
  self: InstanceId,
  isPresent: (replica: InstanceId) => boolean,
): InstanceId | undefined {
  const { replica, sessionEpoch } = machine;
  if (replica === null || replica === self || sessionEpoch <= order.sessionEpoch) return undefined;
  return isPresent(replica) ? replica : undefined;
}
