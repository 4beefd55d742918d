// Events of a workspace: what changed, the newest first, by kind and time. The audit trail is among them.
import { useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { EventRecord } from '#shared/api/rest/events.ts';
import { queryOf, rest } from '../api/client.ts';
import { signedIn } from '../api/session.ts';
import { useResource } from '../live/resource.ts';
import { isKeyOf } from '../parts/choice.ts';
import { shownLine, shownText } from '../parts/hostile.ts';
import { Shown, Twin } from '../parts/notices.tsx';
import { Value } from '../parts/text.tsx';
import { agoOf, clockOf } from '../parts/time.ts';
import type { ScreenProps } from './screen.ts';

const EVERY_MS = 5_000;
const MOST = 100;

/** Groups of kinds by their names. */
const KINDS = {
  changes: 'deployment.*,stub.*',
  tasks: 'task.*',
  containers: 'container.*',
  all: '',
} as const;
type Kind = keyof typeof KINDS;

/** The audit trail is for administrators and primary tokens; any other that asks for it is refused. */
function mayReadAudit(): boolean {
  const facts = signedIn.value?.facts;
  return facts !== undefined && (facts.is_admin || facts.token.token_type === 'workspace_primary');
}

interface Page {
  readonly events: readonly EventRecord[];
  readonly next_before_seq?: number;
}

export function Events({ workspace, home }: ScreenProps) {
  const { query, route } = useLocation();
  const { show } = query as { readonly show?: string };
  const kind: Kind = isKeyOf(KINDS, show) ? show : 'changes';
  const [older, setOlder] = useState<readonly EventRecord[]>([]);
  const [before, setBefore] = useState<number>();
  const named = kind === 'changes' && mayReadAudit() ? `audit.*,${KINDS.changes}` : KINDS[kind];
  const types = { event_types: named, limit: MOST };
  const path = `/events/${workspace.id}/history`;
  const page = useResource(
    `${path}${queryOf(types)}`,
    (signal) => rest<Page>(`${path}${queryOf(types)}`, { signal }),
    EVERY_MS,
  );
  const next = before ?? page.value?.next_before_seq;
  const more = async (): Promise<void> => {
    const answer = await rest<Page>(`${path}${queryOf({ ...types, before_seq: next })}`);
    setOlder((now) => [...now, ...answer.events.toReversed()].slice(0, 2_000));
    setBefore(answer.next_before_seq ?? 0);
  };
  return (
    <>
      <h1>Events</h1>
      <p class="filters" role="group" aria-label="Which events">
        {(Object.keys(KINDS) as Kind[]).map((one) => (
          <button
            key={one}
            type="button"
            aria-pressed={one === kind}
            onClick={() => {
              setOlder([]);
              setBefore(undefined);
              route(`${home}/events${queryOf({ show: one === 'changes' ? undefined : one })}`);
            }}
          >
            {one}
          </button>
        ))}
      </p>
      <Shown of={page}>
        {({ events }) => {
          const newest = events.toReversed();
          const seen = new Set(newest.map(({ seq_num: seq }) => seq));
          const rows = [...newest, ...older.filter(({ seq_num: seq }) => !seen.has(seq))];
          return rows.length === 0 ? (
            <p class="notice">Nothing like that happened in the time that is kept.</p>
          ) : (
            <>
              <ul class="rows">
                {rows.map((event) => (
                  <Row key={event.seq_num} event={event} home={home} />
                ))}
              </ul>
              {next === undefined || next === 0 ? null : (
                <button type="button" onClick={() => void more()}>
                  Older events
                </button>
              )}
            </>
          );
        }}
      </Shown>
      <Twin line={named === '' ? 'longshore events' : `longshore events --type '${named}'`} />
    </>
  );
}

function Row({ event, home }: { readonly event: EventRecord; readonly home: string }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <li>
      <time dateTime={event.timestamp} title={event.timestamp}>
        {clockOf(event.timestamp)}
      </time>{' '}
      <strong>{shownText(event.type)}</strong>{' '}
      <span class="faint">
        {agoOf(event.timestamp)}
        {actorOf(event)}
      </span>
      {event.message === undefined || event.message === '' ? null : <div>{shownLine(event.message)}</div>}
      {event.task_id === undefined ? null : (
        <div class="links">
          <a href={`${home}/tasks/${event.task_id}`}>Task {event.task_id.slice(0, 8)}</a>
        </div>
      )}
      <details onToggle={(toggled) => setOpen(toggled.currentTarget.open)}>
        <summary>Details</summary>
        {isOpen ? <Value text={JSON.stringify(event.data, null, 2)} label="Details of the event" /> : null}
      </details>
    </li>
  );
}

/** Who did it, of an event of the audit trail. */
function actorOf({ data }: EventRecord): string {
  const { actor } = data as {
    readonly actor?: { readonly token_name?: unknown; readonly token_type?: unknown; readonly via?: unknown };
  };
  if (actor === undefined) return '';
  const said = actor.token_name !== '' ? actor.token_name : actor.token_type;
  const name = typeof said === 'string' ? ` by ${shownText(said)}` : '';
  return `${name}${typeof actor.via === 'string' ? ` via ${shownText(actor.via)}` : ''}`;
}
