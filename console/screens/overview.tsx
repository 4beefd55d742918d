// The first screen: a row for each deployment's name, the worst first, with the sentence that says why it is so. An
// empty workspace shows the first three commands.
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { DeploymentRecord } from '#shared/api/rest/deployments.ts';
import { queryOf, rest } from '../api/client.ts';
import { Explanations } from '../api/explain.ts';
import type { Explained } from '../api/explain.ts';
import { may } from '../api/session.ts';
import { useResource } from '../live/resource.ts';
import { Command, Shown, Twin } from '../parts/notices.tsx';
import { rankOf, State } from '../parts/state.tsx';
import { shownText } from '../parts/hostile.ts';
import { Sentence } from '../parts/text.tsx';
import { between } from '../parts/time.ts';
import type { ScreenProps } from './screen.ts';

const LIST_EVERY_MS = 10_000;
const LOOK_EVERY_MS = 3_000;
/** Pause between looks while rows have no explanation yet. */
const NEXT_MS = 50;
/** Age at which an explanation is asked for again. */
const STALE_MS = 12_000;
/** Rows whose explanations are asked for. */
const MOST_EXPLAINED = 60;

type Row = Pick<DeploymentRecord, 'id' | 'name' | 'version' | 'stub_type' | 'created_at' | 'active'>;

interface Listed {
  readonly rows: readonly Row[];
  readonly isAll: boolean;
}

/** The newest version of each name that takes calls, else the newest. */
function namesOf(records: readonly DeploymentRecord[]): readonly Row[] {
  const rows = new Map<string, Row>();
  for (const record of records) {
    const known = rows.get(record.name);
    if (known === undefined || (!known.active && record.active)) rows.set(record.name, record);
  }
  return [...rows.values()];
}

async function read(workspaceId: string, signal: AbortSignal): Promise<Listed> {
  const page = await rest<{ readonly data: readonly DeploymentRecord[]; readonly next: string }>(
    `/deployment/${workspaceId}${queryOf({ limit: 200 })}`,
    { signal },
  );
  return { rows: namesOf(page.data), isAll: page.next === '' };
}

export function Overview({ workspace, home }: ScreenProps) {
  const list = useResource(`overview ${workspace.id}`, (signal) => read(workspace.id, signal), LIST_EVERY_MS);
  const explanations = useMemo(() => new Explanations(workspace.id), [workspace.id]);
  const [filter, setFilter] = useState('');
  const names = (list.value?.rows ?? []).slice(0, MOST_EXPLAINED).map(({ name }) => name);
  const isExplained = may('GET /explain/{ws}/{id}');
  useEffect(() => {
    if (!isExplained || names.length === 0) return undefined;
    const abort = new AbortController();
    const look = async (): Promise<void> => {
      while (!abort.signal.aborted) {
        const isVisible = document.visibilityState === 'visible';
        if (isVisible) await explanations.look(names, STALE_MS, abort.signal);
        const isWhole = explanations.byName.peek().size >= names.length;
        await new Promise((wake) => setTimeout(wake, isWhole || !isVisible ? LOOK_EVERY_MS : NEXT_MS));
      }
    };
    void look();
    return () => abort.abort();
  }, [explanations, names.join('\n'), isExplained]);
  const found = explanations.byName.value;
  return (
    <>
      <h1>Overview</h1>
      <Shown of={list}>
        {({ rows, isAll }) => {
          if (rows.length === 0) return <Empty />;
          const kept = rows.filter(({ name }) => name.includes(filter));
          const placeOf = ({ name }: Row): number => {
            const explained = found.get(name)?.explained;
            return rankOf(explained?.state, (explained?.next_steps.length ?? 0) > 0);
          };
          const sorted = kept.toSorted((a, b) => placeOf(a) - placeOf(b));
          return (
            <>
              <p class="filters">
                <label>
                  Filter{' '}
                  <input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
                </label>
                <span class="faint">
                  {kept.length} of {rows.length} {isAll ? 'deployments' : 'newest deployments'}
                </span>
              </p>
              <ul class="rows" aria-label="Deployments, the worst first">
                {sorted.map((row) => (
                  <DeploymentRow key={row.name} row={row} home={home} explained={found.get(row.name)?.explained} />
                ))}
              </ul>
              {kept.length === 0 ? <p>No name contains {shownText(filter)}: empty the filter to see all.</p> : null}
              <Twin line="longshore deployment list" />
            </>
          );
        }}
      </Shown>
    </>
  );
}

function DeploymentRow({
  row,
  home,
  explained,
}: {
  readonly row: Row;
  readonly home: string;
  readonly explained: Explained | undefined;
}) {
  const address = `${home}/d/${encodeURIComponent(row.name)}`;
  const calls = explained?.deployment?.calls;
  const step = explained?.next_steps[0];
  return (
    <li>
      <p class="head">
        <a href={address}>
          <strong>{shownText(row.name)}</strong>
        </a>{' '}
        <State state={explained?.state ?? (row.active ? 'ACTIVE' : 'STOPPED')} />{' '}
        <span class="faint">
          v{row.version} · {row.stub_type.split('/')[0]}
          {typeof explained?.since === 'string' ? ` · for ${between(explained.since, null)}` : ''}
        </span>
      </p>
      {explained === undefined ? null : (
        <p>
          <Sentence text={explained.summary} />
          {explained.waits_for === '' ? null : (
            <>
              . It waits for <Sentence text={explained.waits_for} />
            </>
          )}
        </p>
      )}
      {step === undefined ? null : (
        <p class="faint">
          next: <Sentence text={step} />
        </p>
      )}
      <p class="links">
        {explained === undefined ? null : <a href={address}>Why</a>}
        {may('GET /logs/{ws}/stream') ? <a href={`${home}/logs?name=${encodeURIComponent(row.name)}`}>Logs</a> : null}
        {calls === null || calls === undefined || calls.last_failed === '' ? null : (
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
