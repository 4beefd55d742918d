// Filters of the list of tasks beside their state: deployment, reason, time, and a task's id. They are in the address,
// so that a link carries them.
import { useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import { isKeyOf } from '../parts/choice.ts';
import { queryOf } from '../api/client.ts';

/** Spans of time, by their names in the address. */
const SPANS = { '1h': 3_600_000, '24h': 86_400_000, '7d': 604_800_000 } as const;

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export interface TaskQuery {
  readonly name?: string;
  readonly show?: string;
  readonly reason?: string;
  readonly since?: string;
}

/** The part of the list's query that these filters are. Times are rounded to minutes: a list is read for a while. */
export const filtersOf = ({ reason, since }: TaskQuery, nowMs = Date.now()) => ({
  failure_reasons: reason,
  created_at_start: isKeyOf(SPANS, since)
    ? new Date(Math.floor((nowMs - SPANS[since]) / 60_000) * 60_000).toISOString()
    : undefined,
});

export function TaskFilters({ home, query }: { readonly home: string; readonly query: TaskQuery }) {
  const { route } = useLocation();
  const [name, setName] = useState(query.name ?? '');
  const [reason, setReason] = useState(query.reason ?? '');
  const [id, setId] = useState('');
  const [problem, setProblem] = useState('');
  return (
    <details class="filters-more" open={query.reason !== undefined || query.since !== undefined}>
      <summary>Filter</summary>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          const sought = id.trim();
          if (sought !== '' && !UUID.test(sought)) return setProblem('A task id is whole: 36 characters.');
          setProblem('');
          if (sought !== '') return route(`${home}/tasks/${sought.toLowerCase()}`);
          route(`${home}/tasks${queryOf({ ...query, name, reason })}`);
        }}
      >
        <label>
          Deployment <input value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label>
          Reason{' '}
          <input
            value={reason}
            placeholder="process_exited"
            onInput={(event) => setReason(event.currentTarget.value.trim())}
          />
        </label>
        <label>
          Called within{' '}
          <select
            value={isKeyOf(SPANS, query.since) ? query.since : ''}
            onChange={(event) => {
              const since = event.currentTarget.value;
              route(`${home}/tasks${queryOf({ ...query, name, reason, since })}`);
            }}
          >
            <option value="">any time</option>
            <option value="1h">an hour</option>
            <option value="24h">a day</option>
            <option value="7d">a week</option>
          </select>
        </label>
        <label>
          Task id <input type="search" value={id} onInput={(event) => setId(event.currentTarget.value)} />
        </label>
        <button type="submit">Apply</button>
        {query.reason === undefined && query.since === undefined && query.name === undefined ? null : (
          <a href={`${home}/tasks${queryOf({ show: query.show })}`}>Without filters</a>
        )}
      </form>
      {problem === '' ? null : (
        <p class="error" role="alert">
          {problem}
        </p>
      )}
    </details>
  );
}
