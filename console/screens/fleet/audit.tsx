// The audit trail: who changed what, the newest first. Words filter by the actor, the action and the target.
import { useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { EventHistory, EventRecord } from '#shared/api/rest/events.ts';
import type { Static } from 'typebox';
import { queryOf, rest } from '../../api/client.ts';
import { signedIn, workspaces } from '../../api/session.ts';
import { useResource } from '../../live/resource.ts';
import { shownLine, shownText } from '../../parts/hostile.ts';
import { Shown, Twin } from '../../parts/notices.tsx';
import { agoOf } from '../../parts/time.ts';

const EVERY_MS = 10_000;
/** Entries that are read; older ones are the command line's. */
const MOST = 500;

type History = Static<typeof EventHistory>;
type Entry = Static<typeof EventRecord>;

export interface Audited {
  readonly who: string;
  readonly from: string;
  readonly action: string;
  readonly target: string;
  readonly details: string;
}

const textOf = (of: unknown, name: string): string => {
  const value = typeof of === 'object' && of !== null ? (of as Readonly<Record<string, unknown>>)[name] : undefined;
  return typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '';
};
const inner = (of: unknown, name: string): unknown =>
  typeof of === 'object' && of !== null ? (of as Readonly<Record<string, unknown>>)[name] : undefined;

/** An entry of the trail as texts. Pure. */
export function auditedOf({ data }: Pick<Entry, 'data'>): Audited {
  const [actor, target, attrs] = [inner(data, 'actor'), inner(data, 'target'), inner(data, 'attrs')];
  const name = textOf(target, 'name');
  const id = textOf(target, 'id');
  return {
    who:
      textOf(actor, 'token_name') || `${textOf(actor, 'token_type')} ${textOf(actor, 'token_id').slice(0, 8)}`.trim(),
    from: [textOf(actor, 'remote_ip'), textOf(actor, 'via')].filter((text) => text !== '').join(', '),
    action: textOf(data, 'action'),
    target: name === '' || name === id ? id : `${name} (${id})`,
    details: Object.entries((attrs ?? {}) as Readonly<Record<string, unknown>>)
      .filter(([, value]) => value !== null && value !== '')
      .map(([key, value]) => `${key}=${String(value)}`)
      .join(' '),
  };
}

export const isLike = (text: string, filter: string): boolean => text.toLowerCase().includes(filter.toLowerCase());

export function Audit() {
  const { query, route, path } = useLocation();
  const own = signedIn.value?.facts.workspace.id ?? '';
  const { of = own } = query;
  const [who, setWho] = useState('');
  const [what, setWhat] = useState('');
  const list = useResource(
    `audit ${of}`,
    (signal) => rest<History>(`/events/${of}/history${queryOf({ event_types: 'audit.*', limit: MOST })}`, { signal }),
    EVERY_MS,
  );
  return (
    <>
      <h1>Audit</h1>
      <div class="filters">
        <label>
          Workspace{' '}
          <select value={of} onChange={(event) => route(`${path}${queryOf({ of: event.currentTarget.value })}`, true)}>
            {workspaces.value.map(({ id, name }) => (
              <option key={id} value={id}>
                {shownText(name === '' ? id : name)}
                {id === own ? ' and the installation' : ''}
              </option>
            ))}
          </select>
        </label>
        <label>
          Who <input value={who} onInput={(event) => setWho(event.currentTarget.value)} />
        </label>
        <label>
          What <input value={what} onInput={(event) => setWhat(event.currentTarget.value)} />
        </label>
      </div>
      <Shown of={list}>
        {({ events, truncated }) => {
          const shown = events
            .toReversed()
            .map((entry) => ({ entry, audited: auditedOf(entry) }))
            .filter(({ audited }) => isLike(`${audited.who} ${audited.from}`, who))
            .filter(({ audited }) => isLike(`${audited.action} ${audited.target}`, what));
          if (shown.length === 0) return <p class="notice">No change is like that.</p>;
          return (
            <>
              <ul class="rows">
                {shown.map(({ entry, audited }) => (
                  <li key={entry.seq_num}>
                    <strong>{shownText(audited.action)}</strong> {shownText(audited.target)}{' '}
                    <span class="faint">
                      by {shownText(audited.who)}
                      {audited.from === '' ? '' : ` from ${shownText(audited.from)}`} · {agoOf(entry.timestamp)}
                    </span>
                    {audited.details === '' ? null : <div class="faint">{shownLine(audited.details)}</div>}
                  </li>
                ))}
              </ul>
              {truncated ? <p class="faint">These are of the newest {MOST} changes.</p> : null}
            </>
          );
        }}
      </Shown>
      <Twin line={`longshore audit --limit ${MOST}`} />
    </>
  );
}
