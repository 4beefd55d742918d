// The map of GPUs: a cell for each, by machine, as the live stream tells them; further machines by pages. A grid for
// arrow keys, or a table. Those that are out come first, with why and with the steps that bring them back; then those
// that are leased and idle. The whole of a GPU is read when somebody chooses its cell.
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { GpuList, GpuMachine, GpuMapList, GpuRecord } from '#shared/api/rest/gpus.ts';
import { apiErrorOf, queryOf, rest, root } from '../../api/client.ts';
import { signedIn } from '../../api/session.ts';
import { useLive } from '../../live/live.ts';
import { useResource } from '../../live/resource.ts';
import { commandsIn, shownText } from '../../parts/hostile.ts';
import type { Page } from '../../parts/list.tsx';
import { Command, Shown, Twin } from '../../parts/notices.tsx';
import { Sentence } from '../../parts/text.tsx';
import { agoOf, spanOf } from '../../parts/time.ts';
import { word } from '../../parts/word.ts';
import { LOOKS, lookOf, lookOfMark, movedTo, useOf } from './gpu-words.ts';
import { Drain, GpuOrder } from './machine-actions.tsx';

const EVERY_MS = 5_000;
/** Rows of one page of a table. */
const PAGE = 50;

export function Gpus() {
  const { query, route, path } = useLocation();
  const { pool = '', view = '' } = query;
  const workspaceId = signedIn.value?.facts.workspace.id ?? '';
  const filter = queryOf({ pool });
  const map = useLive<GpuMapList>(workspaceId, `gpus${filter === '' ? '' : `:${filter.slice(1)}`}`);
  const show = (changed: { readonly pool?: string; readonly view?: string }): void =>
    route(`${path}${queryOf({ pool, view, ...changed })}`, true);
  return (
    <>
      <h1>GPU map</h1>
      <Shown of={map}>
        {({ data, counts, next, pools }) => (
          <>
            <p class="summary">
              {counts.total} GPUs: {counts.leased} leased
              {counts.idle === 0 ? '' : ` (${counts.idle} of them idle)`}, {counts.free} free
              {counts.blocked === 0 ? '' : `, ${counts.blocked} on machines that take nothing new`}, {counts.out} out.
            </p>
            <div class="filters">
              <PoolChoice pools={pools} pool={pool} choose={(name) => show({ pool: name })} />
              <button
                type="button"
                aria-pressed={view === 'table'}
                onClick={() => show({ view: view === 'table' ? '' : 'table' })}
              >
                As a table
              </button>
            </div>
            {data.length === 0 ? <NoGpus /> : null}
            {counts.out === 0 ? null : <Out pool={pool} count={counts.out} />}
            {data.length === 0 ? null : view === 'table' ? (
              <Table key={pool} pool={pool} />
            ) : (
              <Grid key={pool} pool={pool} first={{ data, next }} />
            )}
            {counts.idle === 0 ? null : <Idle pool={pool} count={counts.idle} />}
          </>
        )}
      </Shown>
      <Twin line={pool === '' ? 'longshore machine gpu list' : `longshore machine gpu list --pool ${word(pool)}`} />
    </>
  );
}

const readGpus = (
  query: Readonly<Record<string, string | number | undefined>>,
  signal?: AbortSignal,
): Promise<GpuList> => rest<GpuList>(`/gpu${queryOf(query)}`, signal === undefined ? {} : { signal });

/** @param count - how many there are now: another number has them read again */
const useGpus = (query: Readonly<Record<string, string | number>>, count: number) =>
  useResource(`gpus ${JSON.stringify(query)} ${count}`, (signal) => readGpus(query, signal), EVERY_MS);

function MoreThan({ shown, count }: { readonly shown: number; readonly count: number }) {
  return shown >= count ? null : <p class="faint">These are the first {shown}. The command line lists all.</p>;
}

function NoGpus() {
  return (
    <div class="notice">
      <p>No machine of these has a GPU that its driver lists. This admits one:</p>
      <Command line="longshore machine create --pool default" />
    </div>
  );
}

function PoolChoice({
  pools,
  pool,
  choose,
}: {
  readonly pools: readonly string[];
  readonly pool: string;
  readonly choose: (name: string) => void;
}) {
  const names = [...new Set([...pools, ...(pool === '' ? [] : [pool])])].toSorted();
  return (
    <label>
      Pool{' '}
      <select value={pool} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">all</option>
        {names.map((name) => (
          <option key={name} value={name}>
            {shownText(name)}
          </option>
        ))}
      </select>
    </label>
  );
}

const machineName = (hostname: string, machineId: string): string =>
  shownText(hostname === '' ? machineId.slice(0, 8) : hostname);
const nameOf = ({ hostname, machine_id }: GpuRecord): string => machineName(hostname, machine_id);
const placeOf = (gpu: GpuRecord): string => `${nameOf(gpu)}/${gpu.index}`;
const holderOf = ({ holder }: GpuRecord): string =>
  holder === null ? '' : shownText(holder.name === '' ? holder.container_id : holder.name);

function Holder({ gpu: { holder } }: { readonly gpu: GpuRecord }) {
  if (holder === null) return <>nobody</>;
  return (
    <>
      {shownText(holder.name)} <code>{shownText(holder.container_id)}</code>
      {holder.since === null ? '' : `, for ${spanOf(Date.now() - Date.parse(holder.since))}`}
    </>
  );
}

function Out({ pool, count }: { readonly pool: string; readonly count: number }) {
  const list = useGpus({ pool, state: 'out' }, count);
  return (
    <section>
      <h2>Out of service</h2>
      <Shown of={list}>
        {({ data }) => (
          <>
            <ul class="rows">
              {data.map((gpu) => (
                <li key={gpu.uuid}>
                  <p>
                    <span class="state bad">
                      <span aria-hidden="true">✕ </span>
                      {shownText(gpu.state)}
                    </span>{' '}
                    <strong>{placeOf(gpu)}</strong> {shownText(gpu.model)} <code>{shownText(gpu.uuid)}</code>
                  </p>
                  <p>
                    <Sentence text={gpu.why} />
                  </p>
                  <Steps gpu={gpu} />
                  <GpuActions gpu={gpu} again={list.again} />
                </li>
              ))}
            </ul>
            <MoreThan shown={data.length} count={count} />
          </>
        )}
      </Shown>
    </section>
  );
}

function Steps({ gpu: { steps } }: { readonly gpu: GpuRecord }) {
  if (steps.length === 0) return null;
  return (
    <ol>
      {steps.map((step) => (
        <li key={step}>
          <Sentence text={step} />{' '}
          {commandsIn(step).map((line) => (
            <Command key={line} line={line} />
          ))}
        </li>
      ))}
    </ol>
  );
}

function GpuActions({ gpu, again }: { readonly gpu: GpuRecord; readonly again: () => void }) {
  const { machine_id: machineId, parent_uuid, state } = gpu;
  return (
    <div class="actions">
      <Drain machineId={machineId} name={nameOf(gpu)} done={again} />
      <GpuOrder
        machineId={machineId}
        uuid={parent_uuid === '' ? gpu.uuid : parent_uuid}
        name={placeOf(gpu)}
        isExcluded={state === 'excluded'}
        done={again}
      />
      <a href={`${root}/fleet/machines/${encodeURIComponent(machineId)}`}>Its machine</a>
    </div>
  );
}

/** Further pages behind a first one that is kept fresh: all rows, and a button that reads the next page. */
function useMore<T>(
  first: Page<T>,
  read: (cursor: string) => Promise<Page<T>>,
  idOf: (row: T) => string,
  label: string,
) {
  const [older, setOlder] = useState<Page<T>>();
  const [failure, setFailure] = useState('');
  const next = older?.next ?? first.next;
  const more = async (): Promise<void> => {
    try {
      const page = await read(next);
      setOlder((before) => ({ data: [...(before?.data ?? []), ...page.data], next: page.next }));
      setFailure('');
    } catch (error) {
      setFailure(apiErrorOf(error).message);
    }
  };
  const known = new Set(first.data.map(idOf));
  return {
    rows: [...first.data, ...(older?.data ?? []).filter((row) => !known.has(idOf(row)))],
    button: (
      <>
        {next === '' ? null : (
          <button type="button" onClick={() => void more()}>
            {label}
          </button>
        )}
        {failure === '' ? null : <p class="notice">They cannot be read: {shownText(failure)}</p>}
      </>
    ),
  };
}

/** A row for each machine. One cell takes the focus of the keyboard; arrow keys move it, Enter shows the GPU. */
function Grid({ pool, first }: { readonly pool: string; readonly first: Page<GpuMachine> }) {
  const [at, setAt] = useState({ row: 0, column: 0 });
  const [shown, setShown] = useState<{ readonly machineId: string; readonly column: number }>();
  const grid = useRef<HTMLDivElement>(null);
  const { rows, button } = useMore(
    first,
    (cursor) => rest<GpuMapList>(`/gpu-map${queryOf({ pool, cursor })}`),
    ({ id }) => id,
    'Further machines',
  );
  const lengths = rows.map(({ marks }) => marks.length);
  const here = { row: Math.min(at.row, Math.max(0, rows.length - 1)), column: at.column };
  const onKeyDown = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>): void => {
    const to = movedTo(event.key, here, lengths);
    if (to === undefined) return;
    event.preventDefault();
    setAt(to);
    grid.current?.querySelector<HTMLElement>(`[data-at="${to.row}-${to.column}"]`)?.focus();
  };
  return (
    <section>
      <h2>By machine</h2>
      <p class="faint">
        {Object.values(LOOKS)
          .map(({ mark, words }) => `${mark}: ${words}`)
          .join(', ')}
      </p>
      <div class="gpus" role="grid" aria-label="GPUs by machine" ref={grid} onKeyDown={onKeyDown}>
        {rows.map((row, rowAt) => {
          const name = machineName(row.hostname, row.id);
          return (
            <div key={row.id} class="gpu-row" role="row">
              <span role="rowheader">
                {name} <span class="faint">{shownText(row.pool_name)}</span>
              </span>
              {row.marks.split('').map((mark, columnAt) => {
                const look = lookOfMark(mark);
                const holder = row.holders[columnAt] ?? '';
                const isHere = rowAt === here.row && columnAt === Math.min(here.column, row.marks.length - 1);
                const isShown = shown?.machineId === row.id && shown.column === columnAt;
                const choose = (): void => {
                  setAt({ row: rowAt, column: columnAt });
                  setShown(isShown ? undefined : { machineId: row.id, column: columnAt });
                };
                return (
                  <span
                    key={columnAt}
                    class={`gpu ${look}`}
                    role="gridcell"
                    data-at={`${rowAt}-${columnAt}`}
                    tabIndex={isHere ? 0 : -1}
                    aria-selected={isShown}
                    onClick={choose}
                    onKeyDown={(event) => {
                      if (event.key !== 'Enter' && event.key !== ' ') return;
                      event.preventDefault();
                      choose();
                    }}
                  >
                    <span aria-hidden="true">{LOOKS[look].mark}</span>
                    <span class="hidden">{`${name}, number ${columnAt + 1}, ${shownText(row.model)}: ${LOOKS[look].words}${holder === '' ? '' : ` by ${shownText(holder)}`}`}</span>
                  </span>
                );
              })}
            </div>
          );
        })}
      </div>
      {button}
      {shown === undefined ? null : <Chosen key={`${shown.machineId} ${shown.column}`} {...shown} />}
    </section>
  );
}

/** A GPU by its place in the row of its machine. */
function Chosen({ machineId, column }: { readonly machineId: string; readonly column: number }) {
  const list = useResource(
    `gpus of ${machineId}`,
    (signal) => readGpus({ machine: machineId, limit: 1_000 }, signal),
    EVERY_MS,
  );
  return (
    <Shown of={list}>
      {({ data }) => {
        const gpu = data[column];
        if (gpu === undefined) return <p class="notice">This GPU is gone.</p>;
        return <One gpu={gpu} again={list.again} />;
      }}
    </Shown>
  );
}

function One({ gpu, again }: { readonly gpu: GpuRecord; readonly again: () => void }) {
  return (
    <div class="notice" role="status">
      <p>
        <strong>{placeOf(gpu)}</strong> {shownText(gpu.model)} <code>{shownText(gpu.uuid)}</code>:{' '}
        {LOOKS[lookOf(gpu)].words}
      </p>
      <p>
        Held by <Holder gpu={gpu} />. {useOf(gpu)}
      </p>
      {gpu.why === '' ? null : (
        <p>
          <Sentence text={gpu.why} />
        </p>
      )}
      <Steps gpu={gpu} />
      <GpuActions gpu={gpu} again={again} />
    </div>
  );
}

function Table({ pool }: { readonly pool: string }) {
  const list = useResource(`gpus ${pool}`, (signal) => readGpus({ pool, limit: PAGE }, signal), EVERY_MS);
  return <Shown of={list}>{(first) => <Pages pool={pool} first={first} />}</Shown>;
}

function Pages({ pool, first }: { readonly pool: string; readonly first: Page<GpuRecord> }) {
  const { rows, button } = useMore(
    first,
    (cursor) => readGpus({ pool, limit: PAGE, cursor }),
    ({ uuid }) => uuid,
    'Further GPUs',
  );
  return (
    <>
      <Rows gpus={rows} />
      {button}
    </>
  );
}

function Rows({ gpus }: { readonly gpus: readonly GpuRecord[] }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Table of GPUs">
      <table>
        <thead>
          <tr>
            <th scope="col">GPU</th>
            <th scope="col">Pool</th>
            <th scope="col">Model</th>
            <th scope="col">Standing</th>
            <th scope="col">Held by</th>
            <th scope="col">Use</th>
          </tr>
        </thead>
        <tbody>
          {gpus.map((gpu) => (
            <tr key={gpu.uuid}>
              <th scope="row">{placeOf(gpu)}</th>
              <td>{shownText(gpu.pool_name)}</td>
              <td>{shownText(gpu.model)}</td>
              <td>
                {LOOKS[lookOf(gpu)].mark} {LOOKS[lookOf(gpu)].words}
              </td>
              <td>{holderOf(gpu)}</td>
              <td>{useOf(gpu)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Idle({ pool, count }: { readonly pool: string; readonly count: number }) {
  const list = useGpus({ pool, state: 'idle' }, count);
  return (
    <section>
      <h2>Leased and idle</h2>
      <p>Their holders have used less than 5 % of them for 10 minutes at least.</p>
      <Shown of={list}>
        {({ data }) => (
          <>
            <ul class="rows">
              {data.map((gpu) => (
                <li key={gpu.uuid}>
                  <strong>{placeOf(gpu)}</strong> <Holder gpu={gpu} />, idle since {agoOf(gpu.idle_since)}. {useOf(gpu)}
                </li>
              ))}
            </ul>
            <MoreThan shown={data.length} count={count} />
          </>
        )}
      </Shown>
    </section>
  );
}
