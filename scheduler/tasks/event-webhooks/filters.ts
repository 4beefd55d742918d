// Filters of a webhook: kinds, begins of kinds before a `*`, or `*`. The filters are resolved to kinds, so that the
// database compares whole names. Pure.
import { EVENT_KINDS, isForWebhooks, matchesTypes } from '../../workspaces/events/kinds.ts';

/** Kinds that a webhook may have. */
export const WEBHOOK_KINDS: readonly string[] = Object.keys(EVENT_KINDS).filter(isForWebhooks);

/** Kinds that the filters name; an empty list names all that a webhook may have. */
export const kindsOf = (filters: readonly string[]): readonly string[] =>
  WEBHOOK_KINDS.filter((kind) => matchesTypes(kind, filters));

/** Reason why the filters cannot be a webhook's; undefined: they can. */
export function filtersProblem(filters: readonly string[]): string | undefined {
  for (const filter of filters) {
    if (kindsOf([filter]).length > 0) continue;
    const shown = JSON.stringify(filter.slice(0, 80));
    return Object.hasOwn(EVENT_KINDS, filter)
      ? `event_types: ${shown} is not sent to webhooks; there are ${WEBHOOK_KINDS.join(', ')}`
      : `event_types: there is no kind ${shown} for webhooks; there are ${WEBHOOK_KINDS.join(', ')}, a begin of them with * behind it, and *`;
  }
  return undefined;
}
