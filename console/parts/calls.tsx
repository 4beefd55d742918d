// Numbers of calls: bars of the last hour, errors in percent, spans. Bars have their numbers as a text.
import type { TaskStats } from '#shared/api/rest/task-stats.ts';
import { useLive } from '../live/live.ts';
import { Shown } from './notices.tsx';
import { spanOf } from './time.ts';

const WIDTH = 6;
const HEIGHT = 18;

/** @param label - what a bar counts */
export function Bars({ values, label }: { readonly values: readonly number[]; readonly label: string }) {
  const most = Math.max(1, ...values);
  return (
    <svg
      class="bars"
      role="img"
      aria-label={`${label}: ${values.join(', ')}`}
      width={values.length * WIDTH}
      height={HEIGHT}
      viewBox={`0 0 ${values.length * WIDTH} ${HEIGHT}`}
    >
      {values.map((value, at) => {
        const height = value === 0 ? 1 : Math.max(2, Math.round((value / most) * HEIGHT));
        return <rect key={at} x={at * WIDTH} y={HEIGHT - height} width={WIDTH - 1} height={height} />;
      })}
    </svg>
  );
}

export const countText = (count: number): string =>
  count < 1_000 ? String(count) : `${(count / 1_000).toFixed(count < 10_000 ? 1 : 0)}k`;

export const errorText = (errors: number, calls: number): string =>
  errors === 0 ? 'no errors' : `${((100 * errors) / calls).toFixed(errors * 100 < calls ? 1 : 0)} % errors`;

/** Fewer calls have no part of 95 % or 99 % that is worth a number. */
export const FEW = 20;
const MANY = 100;

/** @param isTold - whether there are enough calls. Spans are known to a factor of two. */
const span = (ms: number | null, isTold = true): string => (ms === null || !isTold ? '–' : spanOf(ms));

/** Calls of some versions within the last hour: numbers, errors, waits and runs. */
export function CallStatistics({
  workspaceId,
  deploymentIds,
}: {
  readonly workspaceId: string;
  readonly deploymentIds: readonly string[];
}) {
  const filter = new URLSearchParams({ deployment_ids: deploymentIds.join(',') }).toString();
  const stats = useLive<TaskStats>(workspaceId, deploymentIds.length === 0 ? '' : `stats:${filter}`);
  return (
    <section>
      <h2>Calls of the last hour</h2>
      <Shown of={stats}>
        {({ total, series }) =>
          total.calls === 0 ? (
            <p>None ended within the hour.</p>
          ) : (
            <>
              <p>
                <Bars values={series.map(({ calls }) => calls)} label="calls by five minutes with calls" />{' '}
                {countText(total.calls)} {total.calls === 1 ? 'call' : 'calls'}, {errorText(total.errors, total.calls)}
              </p>
              <table>
                <thead>
                  <tr>
                    <th scope="col">they</th>
                    <th scope="col">half within about</th>
                    <th scope="col">95 % within</th>
                    <th scope="col">99 % within</th>
                  </tr>
                </thead>
                <tbody>
                  <tr>
                    <th scope="row">waited</th>
                    <td>{span(total.wait_ms.p50)}</td>
                    <td>{span(total.wait_ms.p95, total.calls >= FEW)}</td>
                    <td>{span(total.wait_ms.p99, total.calls >= MANY)}</td>
                  </tr>
                  <tr>
                    <th scope="row">ran</th>
                    <td>{span(total.run_ms.p50)}</td>
                    <td>{span(total.run_ms.p95, total.calls >= FEW)}</td>
                    <td>{span(total.run_ms.p99, total.calls >= MANY)}</td>
                  </tr>
                </tbody>
              </table>
            </>
          )
        }
      </Shown>
    </section>
  );
}
