// The map of GPUs: a cell for each, by machine. A grid for arrow keys, or a table. Those that are out come first, with
// why and with the steps that bring them back; then those that are leased and idle.
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { GpuList, GpuRecord } from '#shared/api/rest/gpus.ts';
import { queryOf, rest, root } from '../../api/client.ts';
import { useResource } from '../../live/resource.ts';
import { commandsIn, shownText } from '../../parts/hostile.ts';
import { Command, Shown, Twin } from '../../parts/notices.tsx';
import { Sentence } from '../../parts/text.tsx';
import { agoOf, spanOf } from '../../parts/time.ts';
import { word } from '../../parts/word.ts';
import { LOOKS, lookOf, movedTo, useOf } from './gpu-words.ts';
import { Drain, GpuOrder } from './machine-actions.tsx';

const EVERY_MS = 5_000;
/** Idle ones that are named. */
const MOST_NAMED = 50;

export function Gpus() {
  const { query, route, path } = useLocation();
  const { pool = '', view = '' } = query;
  const list = useResource(`gpu ${pool}`, (signal) => rest<GpuList>(`/gpu${queryOf({ pool })}`, { signal }), EVERY_MS);
  const show = (changed: { readonly pool?: string; readonly view?: string }): void =>
    route(`${path}${queryOf({ pool, view, ...changed })}`, true);
  return (
    <>
      <h1>GPU map</h1>
      <Shown of={list}>
        {({ data, counts, next }) => (
          <>
            <p class="summary">
              {counts.total} GPUs: {counts.leased} leased, {counts.free} free, {counts.blocked} on machines that take
              nothing new, {counts.out} out. {counts.idle} leased and idle.
            </p>
            <div class="filters">
              <PoolChoice
                pools={data.map(({ pool_name }) => pool_name)}
                pool={pool}
                choose={(name) => show({ pool: name })}
              />
              <button
                type="button"
                aria-pressed={view === 'table'}
                onClick={() => show({ view: view === 'table' ? '' : 'table' })}
              >
                As a table
              </button>
            </div>
            {data.length === 0 ? <NoGpus /> : null}
            <Out gpus={data.filter(({ standing }) => standing === 'out')} again={list.again} />
            {view === 'table' ? <Table gpus={data} /> : <Grid gpus={data} again={list.again} />}
            {next === '' ? null : (
              <p class="faint">These are the first {data.length}: choose a pool to see the others.</p>
            )}
            <Idle gpus={data.filter(({ idle_since }) => idle_since !== null)} />
          </>
        )}
      </Shown>
      <Twin line={pool === '' ? 'longshore machine gpu list' : `longshore machine gpu list --pool ${word(pool)}`} />
    </>
  );
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

const nameOf = ({ hostname, machine_id }: GpuRecord): string =>
  shownText(hostname === '' ? machine_id.slice(0, 8) : hostname);
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

function Out({ gpus, again }: { readonly gpus: readonly GpuRecord[]; readonly again: () => void }) {
  if (gpus.length === 0) return null;
  return (
    <section>
      <h2>Out of service</h2>
      <ul class="rows">
        {gpus.map((gpu) => (
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
            <GpuActions gpu={gpu} again={again} />
          </li>
        ))}
      </ul>
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

/** A row for each machine. One cell takes the focus of the keyboard; arrow keys move it, Enter shows the GPU. */
function Grid({ gpus, again }: { readonly gpus: readonly GpuRecord[]; readonly again: () => void }) {
  const [at, setAt] = useState({ row: 0, column: 0 });
  const [shown, setShown] = useState('');
  const grid = useRef<HTMLDivElement>(null);
  const rows = [...Map.groupBy(gpus, ({ machine_id }) => machine_id).values()];
  const lengths = rows.map((row) => row.length);
  const here = { row: Math.min(at.row, Math.max(0, rows.length - 1)), column: at.column };
  const onKeyDown = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>): void => {
    const to = movedTo(event.key, here, lengths);
    if (to === undefined) return;
    event.preventDefault();
    setAt(to);
    grid.current?.querySelector<HTMLElement>(`[data-at="${to.row}-${to.column}"]`)?.focus();
  };
  const chosen = gpus.find(({ uuid }) => uuid === shown);
  if (rows.length === 0) return null;
  return (
    <section>
      <h2>By machine</h2>
      <p class="faint">
        {Object.values(LOOKS)
          .map(({ mark, words }) => `${mark} ${words}`)
          .join('  ·  ')}
      </p>
      <div class="gpus" role="grid" aria-label="GPUs by machine" ref={grid} onKeyDown={onKeyDown}>
        {rows.map((row, rowAt) => {
          const [first] = row;
          if (first === undefined) return null;
          return (
            <div key={first.machine_id} class="gpu-row" role="row">
              <span role="rowheader">
                {nameOf(first)} <span class="faint">{shownText(first.pool_name)}</span>
              </span>
              {row.map((gpu, columnAt) => {
                const look = lookOf(gpu);
                const isHere = rowAt === here.row && columnAt === Math.min(here.column, row.length - 1);
                const choose = (): void => {
                  setAt({ row: rowAt, column: columnAt });
                  setShown(shown === gpu.uuid ? '' : gpu.uuid);
                };
                return (
                  <span
                    key={gpu.uuid}
                    class={`gpu ${look}`}
                    role="gridcell"
                    data-at={`${rowAt}-${columnAt}`}
                    tabIndex={isHere ? 0 : -1}
                    aria-selected={shown === gpu.uuid}
                    onClick={choose}
                    onKeyDown={(event) => {
                      if (event.key !== 'Enter' && event.key !== ' ') return;
                      event.preventDefault();
                      choose();
                    }}
                  >
                    <span aria-hidden="true">{LOOKS[look].mark}</span>
                    <span class="hidden">{`${placeOf(gpu)} ${shownText(gpu.model)}: ${LOOKS[look].words}${gpu.holder === null ? '' : ` by ${holderOf(gpu)}`}`}</span>
                  </span>
                );
              })}
            </div>
          );
        })}
      </div>
      {chosen === undefined ? null : <One gpu={chosen} again={again} />}
    </section>
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

function Table({ gpus }: { readonly gpus: readonly GpuRecord[] }) {
  if (gpus.length === 0) return null;
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

function Idle({ gpus }: { readonly gpus: readonly GpuRecord[] }) {
  if (gpus.length === 0) return null;
  return (
    <section>
      <h2>Leased and idle</h2>
      <p>Their holders have used less than 5 % of them for 10 minutes at least.</p>
      <ul class="rows">
        {gpus.slice(0, MOST_NAMED).map((gpu) => (
          <li key={gpu.uuid}>
            <strong>{placeOf(gpu)}</strong> <Holder gpu={gpu} />, idle since {agoOf(gpu.idle_since)}. {useOf(gpu)}
          </li>
        ))}
      </ul>
    </section>
  );
}
