// The vocabulary of events: which kinds there are, which of them a webhook may have, and how a filter names them.
// Source: reference, REST §9.2. Pure.

interface Kind {
  /** Whether a webhook may deliver it. */
  readonly webhook: boolean;
  /** Whether it is a row that history reads; the others pass live streams alone. */
  readonly isStored: boolean;
}
const TOLD = { webhook: true, isStored: true } as const satisfies Kind;
const KEPT = { webhook: false, isStored: true } as const satisfies Kind;
const PASSING = { webhook: false, isStored: false } as const satisfies Kind;

/** Every kind but those of the audit trail, whose names begin with {@link AUDIT}. */
export const EVENT_KINDS = {
  'task.created': TOLD,
  'task.updated': TOLD,
  'stub.deploy': TOLD,
  'stub.serve': TOLD,
  'stub.run': TOLD,
  'stub.state.warning': TOLD,
  'stub.state.degraded': TOLD,
  'stub.state.healthy': TOLD,
  'deployment.started': TOLD,
  'deployment.stopped': TOLD,
  'deployment.deleted': TOLD,
  'deployment.scaled': TOLD,
  'deployment.rollout': TOLD,
  'container.lifecycle': KEPT,
  'container.event': KEPT,
  'worker.lifecycle': KEPT,
  'compute.machine': KEPT,
  'compute.pool': KEPT,
  'llm.route': KEPT,
  'container.metrics': PASSING,
  'container.log': PASSING,
  'gateway.endpoint.called': PASSING,
} as const satisfies Record<string, Kind>;
export type EventKind = keyof typeof EVENT_KINDS;

/** Kinds that pass live streams, and are not stored. */
export type PassingKind = {
  [Name in EventKind]: (typeof EVENT_KINDS)[Name] extends typeof PASSING ? Name : never;
}[EventKind];

/** Begin of the kinds that tell who did what. Only administrators and primary tokens read them. */
export const AUDIT = 'audit.';
export const isAudit = (type: string): boolean => type.startsWith(AUDIT);

const kindOf = (type: string): Kind | undefined => (EVENT_KINDS as Readonly<Record<string, Kind>>)[type];

/** Whether a webhook may deliver events of that kind. */
export const isForWebhooks = (type: string): boolean => kindOf(type)?.webhook === true;

/**
 * Whether one of the entries names the kind: a kind, the begin of kinds before a `*`, or `*`. An empty list names every
 * kind. Kinds of the audit trail are named only by an entry that itself begins with `audit.`.
 */
export function matchesTypes(type: string, entries: readonly string[] | undefined): boolean {
  if (entries === undefined || entries.length === 0) return !isAudit(type);
  return entries.some((entry) => {
    if (!entry.endsWith('*')) return entry === type;
    const begin = entry.slice(0, -1);
    return type.startsWith(begin) && (!isAudit(type) || begin.startsWith(AUDIT));
  });
}

/** Kinds that only pass, of those that the entries name in full: no begin of a kind and no `*` asks for them. */
export const passingKindsOf = (entries: readonly string[] | undefined): readonly PassingKind[] =>
  [...new Set(entries)].filter((entry): entry is PassingKind => kindOf(entry)?.isStored === false);

/** Whether an entry asks for kinds that tell who called: those of the audit trail, and calls of the gateway. */
export const asksForCallers = (entries: readonly string[] | undefined): boolean =>
  asksForAudit(entries) || entries?.includes('gateway.endpoint.called') === true;

/** Whether an entry asks for kinds of the audit trail. */
export const asksForAudit = (entries: readonly string[] | undefined): boolean =>
  entries?.some((entry) => entry.startsWith(AUDIT)) === true;

const ENTRY = /^(?:[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*|(?:[a-z][a-z0-9_.]*)?\*)$/;
/** Whether the text can be an entry of a filter; it need not name a kind that exists. */
export const isTypeEntry = (text: string): boolean => text.length <= 128 && ENTRY.test(text);
