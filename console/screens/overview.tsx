// The first screen: a row for each deployment's name, the worst first, with the sentence that says why it is so. An
// empty workspace shows the first three commands.
import { useState } from 'preact/hooks';
import type { HealthList, HealthRow } from '#shared/api/rest/deployment-health.ts';
import { may } from '../api/session.ts';
import { useLive } from '../live/live.ts';
import { readyOf } from '../parts/counted.ts';
import { Bars, FEW, countText, errorText } from '../parts/calls.tsx';
import { Command, Shown, Twin } from '../parts/notices.tsx';
import { State } from '../parts/state.tsx';
import { shownText, withoutSubject } from '../parts/hostile.ts';
import { Sentence } from '../parts/text.tsx';
import { between, spanOf } from '../parts/time.ts';
import type { ScreenProps } from './screen.ts';

export function Overview({ workspace, home }: ScreenProps) {
  const health = useLive<HealthList>(workspace.id, 'overview');
  const [filter, setFilter] = useState('');
  return (
    <>
      <h1>Overview</h1>
      <Shown of={health}>
        {({ data, total, leader_answered: leaderAnswered }) => {
          if (total === 0) return <Empty />;
          const kept = data.filter(({ name }) => name.includes(filter));
          const troubled = kept.filter((row) => row.needs_attention);
          const others = kept.filter((row) => !row.needs_attention);
          return (
            <>
              <p class="filters">
                <label>
                  Filter{' '}
                  <input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
                </label>
                <span class="faint">
                  {kept.length} of {total} {total === 1 ? 'deployment' : 'deployments'}
                </span>
              </p>
              {leaderAnswered ? null : (
                <p class="notice wait" role="status">
                  The scheduler that leads did not answer, so numbers are missing. The page asks again.
                </p>
              )}
              {troubled.length === 0 ? null : (
                <Rows title={`Needs attention: ${troubled.length}`} rows={troubled} home={home} />
              )}
              {others.length === 0 ? null : (
                <Rows title={troubled.length === 0 ? 'All are well' : 'The others'} rows={others} home={home} />
              )}
              {kept.length === 0 ? <p>No name contains {shownText(filter)}: empty the filter to see all.</p> : null}
              <Twin line="longshore deployment health" />
            </>
          );
        }}
      </Shown>
    </>
  );
}

const readyText = (ready: number, wanted: number): string =>
  ready === 0 && wanted === 0 ? 'no container wanted' : `${readyOf(ready, wanted)} ready`;

function Rows({
  title,
  rows,
  home,
}: {
  readonly title: string;
  readonly rows: readonly HealthRow[];
  readonly home: string;
}) {
  return (
    <section>
      <h2>{title}</h2>
      <ul class="rows" aria-label={title}>
        {rows.map((row) => (
          <DeploymentRow key={`${row.stub_type} ${row.name}`} row={row} home={home} />
        ))}
      </ul>
    </section>
  );
}

function DeploymentRow({ row, home }: { readonly row: HealthRow; readonly home: string }) {
  const address = `${home}/d/${encodeURIComponent(row.name)}`;
  const { calls, newer } = row;
  return (
    <li>
      <p class="head">
        <a href={address}>
          <strong>{shownText(row.name)}</strong>
        </a>{' '}
        <State state={row.state} />{' '}
        <span class="faint">
          {row.since === null ? '' : `for ${between(row.since, null)} · `}v{row.version} · {row.stub_type.split('/')[0]}
          {row.ready === null || row.wanted === null ? '' : ` · ${readyText(row.ready, row.wanted)}`}
          {row.hour.calls === 0
            ? ''
            : ` · ${countText(row.hour.calls)} ${row.hour.calls === 1 ? 'call' : 'calls'} in the hour, ${errorText(row.hour.errors, row.hour.calls)}`}
          {row.hour.p50_ms === null || row.hour.p95_ms === null
            ? ''
            : ` · half run within about ${spanOf(row.hour.p50_ms)}${row.hour.calls < FEW ? '' : `, 95 % within ${spanOf(row.hour.p95_ms)}`}`}
          {newer?.rollout === 'waiting' ? ` · v${newer.version} starts` : ''}
        </span>{' '}
        {row.hour.calls === 0 ? null : <Bars values={row.hour.bars} label="calls by five minutes" />}
      </p>
      <p>
        <Sentence text={withoutSubject(row.summary, row.name, row.state)} />
        {row.waits_for === '' ? null : (
          <>
            . It waits for <Sentence text={row.waits_for} />
          </>
        )}
      </p>
      {newer?.rollout === 'failed' ? (
        <p>
          v{newer.version} did not start: <Sentence text={newer.why} />
        </p>
      ) : null}
      {row.next_step === '' ? null : (
        <p class="faint">
          next: <Sentence text={row.next_step} />
        </p>
      )}
      <p class="links">
        {may('GET /explain/{ws}/{id}') ? <a href={address}>Why</a> : null}
        {may('GET /logs/{ws}/stream') ? <a href={`${home}/logs?name=${encodeURIComponent(row.name)}`}>Logs</a> : null}
        {calls.last_failed === '' ? null : (
          <a href={`${home}/tasks/${calls.last_failed}`}>
            Last failure{calls.last_error === '' ? '' : `: ${shownText(calls.last_error).slice(0, 120)}`}
          </a>
        )}
      </p>
    </li>
  );
}

function Empty() {
  return (
    <section class="notice">
      <p>
        <strong>Nothing is deployed in this workspace yet.</strong> Three commands make an app and call it. This page
        shows it as soon as it is there.
      </p>
      <ol>
        <li>
          <Command line="longshore init shop" />
        </li>
        <li>
          <Command line="longshore deploy shop/app.py" />
        </li>
        <li>
          <Command line="longshore invoke shop" />
        </li>
      </ol>
    </section>
  );
}
