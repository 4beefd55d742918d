// Pools: what each has, whether it grows and why not, machines that cannot go on, and the providers that make machines.
import type { ListPoolsResponse, Pool } from '#shared/api/pools.ts';
import type { ProviderRecord } from '#shared/api/rest/providers.ts';
import { gateway, queryOf, rest, root } from '../../api/client.ts';
import { may } from '../../api/session.ts';
import { useResource } from '../../live/resource.ts';
import { counted } from '../../parts/counted.ts';
import { commandsIn, shownText } from '../../parts/hostile.ts';
import { Command, Shown, Twin } from '../../parts/notices.tsx';
import { Sentence } from '../../parts/text.tsx';
import { agoOf } from '../../parts/time.ts';

const EVERY_MS = 10_000;

export function Pools() {
  const pools = useResource('pools', (signal) => gateway<ListPoolsResponse>('/pools', { signal }), EVERY_MS);
  return (
    <>
      <h1>Pools</h1>
      <Shown of={pools}>
        {(answer) =>
          answer.pools.length === 0 ? (
            <div class="notice">
              <p>There is no pool yet. The first machine makes one:</p>
              <Command line="longshore machine create --pool default" />
            </div>
          ) : (
            <ul class="rows">
              {answer.pools.map((pool) => (
                <Row key={pool.name} pool={pool} />
              ))}
            </ul>
          )
        }
      </Shown>
      <Twin line="longshore pool list" />
      {may('GET /provider') ? <Providers /> : null}
    </>
  );
}

function Row({ pool }: { readonly pool: Pool }) {
  const { state, growth } = pool;
  const isWell = state?.status === 'HEALTHY';
  return (
    <li>
      <p>
        <span class={`state ${isWell ? 'good' : 'bad'}`}>
          <span aria-hidden="true">{isWell ? '● ' : '✕ '}</span>
          {state?.status ?? ''}
        </span>{' '}
        <strong>{shownText(pool.name)}</strong>{' '}
        <a href={`${root}/fleet/gpus${queryOf({ pool: pool.name })}`}>
          {pool.gpu === '' ? 'no GPU' : shownText(pool.gpu)}
        </a>
      </p>
      {state === null ? null : (
        <p class="faint">
          {state.readyMachines} of {counted(state.registeredMachines, 'machine')} ready ·{' '}
          {counted(state.freeGpu, 'GPU')} free · {counted(state.runningContainers, 'container')} running ·{' '}
          {state.pendingContainers} on their way
        </p>
      )}
      {(state?.reasons ?? []).map((reason) => (
        <p key={reason}>
          <Sentence text={reason} />
        </p>
      ))}
      {growth === null ? null : (
        <>
          <p>
            <Sentence text={growth.text} />
          </p>
          {growth.step === '' ? null : <Step text={growth.step} />}
          {growth.stuck.map((machine) => (
            <div key={machine.machineId}>
              <p class="error">{shownText(machine.text)}</p>
              <Command line={machine.step} />
            </div>
          ))}
        </>
      )}
    </li>
  );
}

function Step({ text }: { readonly text: string }) {
  return (
    <p>
      Next: <Sentence text={text} />{' '}
      {commandsIn(text).map((line) => (
        <Command key={line} line={line} />
      ))}
    </p>
  );
}

function Providers() {
  const list = useResource(
    'providers',
    (signal) => rest<{ readonly data: readonly ProviderRecord[] }>('/provider', { signal }),
    EVERY_MS,
  );
  return (
    <section>
      <h2>Providers</h2>
      <Shown of={list}>
        {({ data }) =>
          data.length === 0 ? (
            <p>No program makes machines here: docs/providers.md says how one is added.</p>
          ) : (
            <ul class="rows">
              {data.map((one) => (
                <li key={one.name}>
                  <p>
                    <strong>{shownText(one.name)}</strong> {one.machines.joined} machines, {one.machines.pending} on
                    their way, {one.machines.leaving} leaving; {one.hourly_cost} an hour
                  </p>
                  {one.calls
                    .filter(({ ok }) => !ok)
                    .map((call) => (
                      <p key={call.verb} class="error">
                        {call.verb} has failed {call.failures} times, last {agoOf(call.called_at)}:{' '}
                        {shownText(call.failure)}
                      </p>
                    ))}
                </li>
              ))}
            </ul>
          )
        }
      </Shown>
      <Twin line="longshore provider list" />
    </section>
  );
}
