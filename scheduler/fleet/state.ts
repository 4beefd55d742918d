// A machine's health and its intent, each a table: a transition that is not listed is refused, counted and logged. The
// agent's behaviour sets the health, the operator sets the intent, and neither changes the other. The store makes two
// more transitions: PENDING to EXPIRED (expireJoinSecrets), and a joined machine to DELETED.

export type Health = 'PENDING' | 'EXPIRED' | 'RECONCILING' | 'READY' | 'SUSPECT' | 'LOST' | 'DELETED';

export const HEALTH_TRANSITIONS = {
  PENDING: { hello: 'RECONCILING', join_expired: 'EXPIRED', delete: 'DELETED' },
  EXPIRED: { token_issued: 'PENDING', delete: 'DELETED' },
  // A newer session, or the same machine after a boot, begins anew.
  RECONCILING: { hello: 'RECONCILING', resolved: 'READY', silent: 'SUSPECT', delete: 'DELETED' },
  READY: { hello: 'RECONCILING', silent: 'SUSPECT', delete: 'DELETED' },
  SUSPECT: { hello: 'RECONCILING', overdue: 'LOST', delete: 'DELETED' },
  LOST: { hello: 'RECONCILING', delete: 'DELETED' },
  DELETED: {},
} as const satisfies Record<Health, Readonly<Record<string, Health>>>;

export type Intent = 'active' | 'cordoned' | 'draining' | 'drained';

export const INTENT_TRANSITIONS = {
  active: { cordon: 'cordoned', drain: 'draining' },
  cordoned: { drain: 'draining', uncordon: 'active' },
  draining: { emptied: 'drained', uncordon: 'active' },
  // A container lives there again, or still: drift.
  drained: { found_live: 'draining', uncordon: 'active' },
} as const satisfies Record<Intent, Readonly<Record<string, Intent>>>;

type EventOf<Table> = { [State in keyof Table]: keyof Table[State] }[keyof Table];
export type HealthEvent = EventOf<typeof HEALTH_TRANSITIONS>;
export type IntentEvent = EventOf<typeof INTENT_TRANSITIONS>;

/** The state after an event. @returns undefined: refused */
export function healthAfter(from: Health, event: HealthEvent): Health | undefined {
  const row: Readonly<Record<string, Health>> = HEALTH_TRANSITIONS[from];
  return row[event];
}

/** The intent after an event. @returns undefined: refused (a machine that has that intent already is a success) */
export function intentAfter(from: string, event: IntentEvent): Intent | undefined {
  const row: Readonly<Record<string, Intent>> | undefined = INTENT_TRANSITIONS[from as Intent];
  return row?.[event];
}

/**
 * Milliseconds that a silent machine may take to come back before it counts
 * as lost. The time is doubled when its agent said that it only restarts.
 */
export const lostAfterMs = (goodbye: string | null, afterMs: number): number =>
  goodbye === 'restarting' ? 2 * afterMs : afterMs;
