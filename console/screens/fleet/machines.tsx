// Machines: how each is, in words; what its host is made of; cordon, drain and what blocks a drain; a new machine with
// the command that joins it.
import { useState } from 'preact/hooks';
import type { CreateMachineResponse, ListMachinesResponse, Machine } from '#shared/api/machines.ts';
import type { ListWorkersResponse, Worker } from '#shared/api/workers.ts';
import { apiErrorOf, gateway, queryOf, root } from '../../api/client.ts';
import type { ApiError } from '../../api/client.ts';
import { may } from '../../api/session.ts';
import { useResource } from '../../live/resource.ts';
import { counted } from '../../parts/counted.ts';
import { shownText } from '../../parts/hostile.ts';
import { Command, Failure, Shown, Twin } from '../../parts/notices.tsx';
import { agoOf, spanOf } from '../../parts/time.ts';
import { word } from '../../parts/word.ts';
import { Cordon, Drain, Uncordon } from './machine-actions.tsx';

const EVERY_MS = 5_000;
/** Machines that one page shows. */
const MOST_SHOWN = 200;

interface Fleet {
  readonly machines: readonly Machine[];
  readonly workers: ReadonlyMap<string, Worker>;
}

async function readFleet(machineId: string, signal: AbortSignal): Promise<Fleet> {
  const [{ machines }, { workers }] = await Promise.all([
    gateway<ListMachinesResponse>(`/machines${queryOf({ machineId })}`, { signal }),
    gateway<ListWorkersResponse>('/workers', { signal }),
  ]);
  return { machines, workers: new Map(workers.map((worker) => [worker.machineId, worker])) };
}

export function Machines({ id }: { readonly id: string }) {
  const fleet = useResource(`machines ${id}`, (signal) => readFleet(id, signal), EVERY_MS);
  return (
    <>
      <h1>{id === '' ? 'Machines' : 'Machine'}</h1>
      <Shown of={fleet}>
        {({ machines, workers }) =>
          machines.length === 0 ? (
            <p class="notice">
              {id === '' ? 'There is no machine yet. Make one below.' : 'There is no such machine: it was deleted.'}
            </p>
          ) : (
            <>
              {id === '' ? (
                <p class="summary">
                  {counted(machines.length, 'machine')},{' '}
                  {machines.filter(({ status }) => status === 'available').length} available
                </p>
              ) : null}
              <ul class="rows">
                {machines.slice(0, MOST_SHOWN).map((machine) => (
                  <Row
                    key={machine.id}
                    machine={machine}
                    worker={workers.get(machine.id)}
                    isWhole={id !== ''}
                    again={fleet.again}
                  />
                ))}
              </ul>
              {machines.length > MOST_SHOWN ? (
                <p class="faint">These are the first {MOST_SHOWN}: the command line lists all.</p>
              ) : null}
            </>
          )
        }
      </Shown>
      {id === '' && may('POST /gateway/machines') ? <Create again={fleet.again} /> : null}
      {id === '' ? <Twin line="longshore machine list" /> : <Twin line={`longshore machine show ${word(id)}`} />}
    </>
  );
}

const TONES: Readonly<Record<string, readonly [string, string]>> = {
  available: ['good', '●'],
  pending: ['wait', '◐'],
  registered: ['bad', '✕'],
  disabled: ['calm', '○'],
  draining: ['wait', '◐'],
  drained: ['calm', '○'],
};
const WORDS: Readonly<Record<string, string>> = {
  available: 'takes containers',
  pending: 'has not joined yet',
  registered: 'its agent is not connected',
  disabled: 'takes nothing new',
  draining: 'takes nothing new, and what runs there leaves',
  drained: 'takes nothing new, and nothing runs there',
};

/** The status, and what an operator has asked for beside it. */
function stateOf({ status }: Machine, worker: Worker | undefined): string {
  const drain = worker?.drain ?? null;
  if (status !== 'disabled' || drain === null) return status;
  return drain.remaining === 0 ? 'drained' : 'draining';
}

const GIB = 1024;
const nameOf = ({ id, host }: Machine): string => shownText(host?.hostname || id.slice(0, 8));

function Row({
  machine,
  worker,
  isWhole,
  again,
}: {
  readonly machine: Machine;
  readonly worker: Worker | undefined;
  readonly isWhole: boolean;
  readonly again: () => void;
}) {
  const state = stateOf(machine, worker);
  const [tone, shape] = TONES[state] ?? ['wait', '◐'];
  const name = nameOf(machine);
  const { machineMetrics: use } = machine;
  return (
    <li>
      <p>
        <span class={`state ${tone}`}>
          <span aria-hidden="true">{shape} </span>
          {shownText(state)}
        </span>{' '}
        <a href={`${root}/fleet/machines/${encodeURIComponent(machine.id)}`}>
          <code>{shownText(machine.id)}</code>
        </a>{' '}
        pool {shownText(machine.poolName)}: {WORDS[state] ?? ''}
        <span class="faint"> {machine.lastKeepalive === '' ? '' : `seen ${agoOf(machine.lastKeepalive)}`}</span>
      </p>
      <p class="faint">
        {machine.gpuCount === 0
          ? 'no GPU'
          : `${machine.gpuCount}× ${shownText(machine.gpu)}, ${use?.freeGpuCount ?? 0} free`}
        {' · '}
        {machine.cpu / 1000} CPU{' · '}
        {Math.round(machine.memory / GIB)} GiB{' · '}
        {counted(use?.containerCount ?? 0, 'container')}
        {machine.agentVersion === '' ? '' : ` · agent ${shownText(machine.agentVersion)}`}
      </p>
      {machine.conditions.map((condition) => (
        <p key={condition} class="error">
          {shownText(condition)}
          {machine.conditionWords[condition] === undefined ? '' : `: ${shownText(machine.conditionWords[condition])}`}
        </p>
      ))}
      {worker?.drain === null || worker?.drain === undefined ? null : <Draining drain={worker.drain} />}
      {worker === undefined ? null : (
        <div class="actions">
          {worker.cordonRequested ? (
            <Uncordon machineId={worker.id} name={name} isDrain={worker.drain !== null} done={again} />
          ) : (
            <Cordon machineId={worker.id} name={name} done={again} />
          )}
          {worker.drain === null ? (
            <Drain machineId={worker.id} name={name} count={worker.activeContainers.length} done={again} />
          ) : null}
        </div>
      )}
      {isWhole ? <Host machine={machine} /> : null}
    </li>
  );
}

const BLOCKS: Readonly<Record<string, string>> = {
  replacement: 'waits for its replacement',
  made_by_hand: 'was made by hand, and stays until somebody stops it',
  stopping: 'stops',
  machine_away: 'is on a machine that does not talk',
};

/** Why a container is still there: what it waits for, and the tasks on which it works. */
function staysBecause({ why, attempts }: NonNullable<Worker['drain']>['blockedBy'][number]): string {
  const tasks = attempts === 0 ? 'ends its tasks' : `works on ${counted(attempts, 'task')}`;
  if (why === 'tasks') return tasks;
  return `${BLOCKS[why] ?? shownText(why)}${attempts === 0 ? '' : `, and ${tasks}`}`;
}

function Draining({ drain }: { readonly drain: NonNullable<Worker['drain']> }) {
  return (
    <div role="status">
      <p>
        {drain.remaining === 0
          ? `Drained: all of ${drain.total} containers have left.`
          : `Drains: ${drain.remaining} of ${drain.total} containers are left${drain.deadline === null ? '' : `, for ${spanOf(Date.parse(drain.deadline) - Date.now())} at the longest`}.`}
      </p>
      <ul>
        {drain.blockedBy.map((one) => (
          <li key={one.containerId}>
            <code>{shownText(one.containerId)}</code> {staysBecause(one)}
            {one.detail === '' ? '' : `: ${shownText(one.detail)}`}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Host({ machine: { host, labels } }: { readonly machine: Machine }) {
  const facts: readonly (readonly [string, string])[] =
    host === null
      ? []
      : [
          ['host', host.hostname],
          ['system', `${host.os}, kernel ${host.kernel}, ${host.arch}`],
          ['engine', `Docker ${host.dockerVersion}`],
          ['GPU driver', host.gpuDriver],
          ['processor', host.cpuModel],
          ['product', `${host.vendor} ${host.product} ${host.virtualization}`.trim()],
          [
            'labels',
            Object.entries(labels)
              .map(([key, value]) => `${key}=${value}`)
              .join(' '),
          ],
        ];
  return (
    <>
      <dl class="numbers">
        {facts
          .filter(([, value]) => value !== '')
          .map(([term, value]) => (
            <div key={term}>
              <dt>{term}</dt>
              <dd>{shownText(value)}</dd>
            </div>
          ))}
      </dl>
      {(host?.warnings ?? []).map((one) => (
        <p key={one.check} class="notice wait">
          {shownText(one.check)}: {shownText(one.found)}. {shownText(one.remedy)}
        </p>
      ))}
    </>
  );
}

/** A new machine, and the command that joins it: its token is in this answer alone. */
function Create({ again }: { readonly again: () => void }) {
  const [pool, setPool] = useState('default');
  const [made, setMade] = useState<CreateMachineResponse>();
  const [failure, setFailure] = useState<ApiError>();
  const create = async (): Promise<void> => {
    setFailure(undefined);
    try {
      setMade(await gateway<CreateMachineResponse>('/machines', { method: 'POST', body: { poolName: pool } }));
      again();
    } catch (error) {
      setFailure(apiErrorOf(error));
    }
  };
  return (
    <section>
      <h2>Add a machine</h2>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        <label>
          Pool <input value={pool} onInput={(event) => setPool(event.currentTarget.value)} required />
        </label>
        <button type="submit">Make its join command</button>
      </form>
      {failure === undefined ? null : <Failure failure={failure} />}
      {made === undefined ? null : (
        <div class="notice" role="status">
          <p>
            Run this on the machine, with Docker and Longshore installed. It joins one machine, once, within 30 minutes:
          </p>
          <Command
            line={`LONGSHORE_SCHEDULER_ADDRESS=${made.agentUpstreamUrl.replace(/^[a-z]+:\/\//, '')} LONGSHORE_JOIN_TOKEN=${made.agentUpstreamToken} longshore agent`}
          />
          <p class="faint">
            The token is shown only here. The command line prints an installer where there is a release.
          </p>
        </div>
      )}
      <Twin line={`longshore machine create --pool ${word(pool)}`} />
    </section>
  );
}
