// Usage of a workspace: GPU and container hours by deployment, app, GPU model or day, also of those that are gone. A
// container has no price; requests to models do.
import { useLocation } from 'preact-iso/router';
import type { UsageRecord } from '#shared/api/rest/credits.ts';
import type { AppRecord } from '#shared/api/rest/app-record.ts';
import { queryOf, rest } from '../api/client.ts';
import { may } from '../api/session.ts';
import { useResource } from '../live/resource.ts';
import { isKeyOf } from '../parts/choice.ts';
import { shownText } from '../parts/hostile.ts';
import type { Page } from '../parts/list.tsx';
import { Shown, Twin } from '../parts/notices.tsx';
import type { ScreenProps } from './screen.ts';

const EVERY_MS = 60_000;
const DAY_MS = 86_400_000;
/** Rows that are shown. */
const MOST_ROWS = 500;

/** Groups by their names in the address. */
const GROUPS = {
  deployment: 'deployment,gpu_model',
  app: 'app,gpu_model',
  gpu: 'gpu_model',
  day: 'day',
  model: 'model',
};
type Group = keyof typeof GROUPS;
const GROUP_WORDS: Readonly<Partial<Record<Group, string>>> = { gpu: 'GPU model', model: 'model of /v1' };
const SPANS = { '24h': 1, '7d': 7, '30d': 30, '400d': 400 } as const;
type Span = keyof typeof SPANS;

type Row = UsageRecord['data'][number];

export function Usage({ workspace, home }: ScreenProps) {
  const { query, route } = useLocation();
  const { by, span } = query as { readonly by?: string; readonly span?: string };
  const group: Group = isKeyOf(GROUPS, by) ? by : 'deployment';
  const days: Span = isKeyOf(SPANS, span) ? span : '30d';
  const key = `${GROUPS[group]} ${days}`;
  const usage = useResource(
    `usage ${workspace.id} ${key}`,
    async (signal) => {
      const from = new Date(Date.now() - SPANS[days] * DAY_MS).toISOString();
      const answer = await rest<UsageRecord>(`/usage/${workspace.id}${queryOf({ by: GROUPS[group], from })}`, {
        signal,
      });
      return { ...answer, apps: group === 'app' ? await appNames(workspace.id, signal) : new Map<string, string>() };
    },
    EVERY_MS,
  );
  const at = (more: { readonly by?: string; readonly span?: string }): string =>
    `${home}/usage${queryOf({ by: group, span: days, ...more })}`;
  return (
    <>
      <h1>Usage</h1>
      <p class="filters" role="group" aria-label="By">
        by
        {(Object.keys(GROUPS) as Group[]).map((one) => (
          <button key={one} type="button" aria-pressed={one === group} onClick={() => route(at({ by: one }))}>
            {GROUP_WORDS[one] ?? one}
          </button>
        ))}
        <label>
          in the last{' '}
          <select value={days} onChange={(event) => route(at({ span: event.currentTarget.value }))}>
            {Object.entries(SPANS).map(([name, count]) => (
              <option key={name} value={name}>
                {count === 1 ? '24 hours' : `${count} days`}
              </option>
            ))}
          </select>
        </label>
      </p>
      <Shown of={usage}>{(value) => <Table of={value} group={group} apps={value.apps} />}</Shown>
      <p class="faint">
        An hour of a container that runs is counted once it is over. GPU models are as apps asked for them. Containers
        have hours and no price; only requests to models have one.
      </p>
      <Twin line={`longshore usage --by ${GROUPS[group]}`} />
    </>
  );
}

async function appNames(workspaceId: string, signal: AbortSignal): Promise<ReadonlyMap<string, string>> {
  if (!may('GET /app/{ws}')) return new Map();
  const { data } = await rest<Page<AppRecord>>(`/app/${workspaceId}${queryOf({ limit: 1000 })}`, { signal });
  return new Map(data.map(({ id, name }) => [id, name]));
}

const hours = (seconds: number): string => (seconds / 3600).toFixed(2);

/** A row without a name: requests to models are counted by model, and not by who serves it. */
const restOf = (row: Row, what: string): string => (row.requests > 0 ? '(requests to models)' : `(no ${what})`);

function nameOf(row: Row, group: Group, apps: ReadonlyMap<string, string>): string {
  switch (group) {
    case 'deployment':
      return row.deployment === undefined || row.deployment === '' ? restOf(row, 'deployment') : row.deployment;
    case 'app': {
      const id = row.app_id ?? '';
      return apps.get(id) ?? (id === '' ? restOf(row, 'app') : id.slice(0, 8));
    }
    case 'gpu':
      return row.gpu_model === undefined || row.gpu_model === '' ? '(no GPU)' : row.gpu_model;
    case 'day':
      return row.day ?? '';
    case 'model':
      return row.model === undefined || row.model === '' ? '(no model)' : row.model;
  }
}

function Table({
  of: { data, total, truncated },
  group,
  apps,
}: {
  readonly of: UsageRecord;
  readonly group: Group;
  readonly apps: ReadonlyMap<string, string>;
}) {
  const rows = data
    .filter((row) => row.container_seconds > 0 || row.requests > 0)
    .toSorted((a, b) =>
      group === 'day'
        ? (b.day ?? '').localeCompare(a.day ?? '')
        : b.gpu_seconds - a.gpu_seconds || b.container_seconds - a.container_seconds,
    );
  if (rows.length === 0) return <p class="notice">Nothing ran in that time, as far as whole hours are known.</p>;
  const most = Math.max(...rows.map((row) => row.gpu_seconds));
  const hasModel = group === 'deployment' || group === 'app';
  const isOfModels = rows.some((row) => row.requests > 0);
  return (
    <div class="scrolls" tabIndex={0} role="region" aria-label="Usage">
      <table>
        <thead>
          <tr>
            <th scope="col">{GROUP_WORDS[group] ?? group}</th>
            {hasModel ? <th scope="col">GPU</th> : null}
            <th scope="col" class="number">
              GPU hours
            </th>
            <th scope="col" class="number">
              container hours
            </th>
            {isOfModels ? (
              <>
                <th scope="col" class="number">
                  requests to models
                </th>
                <th scope="col" class="number">
                  cost of requests
                </th>
              </>
            ) : null}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MOST_ROWS).map((row, at) => (
            <tr key={at}>
              <th scope="row">{shownText(nameOf(row, group, apps))}</th>
              {hasModel ? <td>{shownText(row.gpu_model ?? '')}</td> : null}
              <td class="number">
                {hours(row.gpu_seconds)}{' '}
                {most === 0 ? null : <meter aria-hidden="true" min={0} max={most} value={row.gpu_seconds} />}
              </td>
              <td class="number">{hours(row.container_seconds)}</td>
              {isOfModels ? <ModelCells of={row} /> : null}
            </tr>
          ))}
          <tr>
            <th scope="row">
              <strong>total</strong>
            </th>
            {hasModel ? <td /> : null}
            <td class="number">{hours(total.gpu_seconds)}</td>
            <td class="number">{hours(total.container_seconds)}</td>
            {isOfModels ? <ModelCells of={total} /> : null}
          </tr>
        </tbody>
      </table>
      {truncated || rows.length > MOST_ROWS ? <p class="faint">There are more rows: name a shorter time.</p> : null}
    </div>
  );
}

const ModelCells = ({ of }: { readonly of: Pick<Row, 'requests' | 'cost_micros'> }) => (
  <>
    <td class="number">{of.requests}</td>
    <td class="number">{(of.cost_micros / 1_000_000).toFixed(2)}</td>
  </>
);
