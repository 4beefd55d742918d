// Lines over time as a drawing, with a table of the same numbers for those who do not see it.
import { HEIGHT, WIDTH, pathOf } from './chart-path.ts';
import { clockOf } from './time.ts';

export interface Line {
  readonly title: string;
  /** A value for each moment; null: nothing is known. */
  readonly values: readonly (number | null)[];
  /** A bound is drawn with dashes. */
  readonly isBound?: boolean;
}

/** Rows of the table. */
const MOST_ROWS = 100;

export function Chart({
  title,
  times,
  lines,
  shown,
}: {
  readonly title: string;
  /** RFC 3339, one for each value. */
  readonly times: readonly string[];
  readonly lines: readonly Line[];
  /** A value as people read it. */
  readonly shown: (value: number) => string;
}) {
  const most = Math.max(0, ...lines.flatMap(({ values }) => values.filter((value) => value !== null)));
  const last = (values: Line['values']): string => {
    const value = values.findLast((one) => one !== null);
    return value === undefined || value === null ? 'not known' : shown(value);
  };
  const said = lines.map((line) => `${line.title} ${last(line.values)}`).join(', ');
  return (
    <figure class="chart">
      <figcaption>
        {title}: <span class="faint">{said}</span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${title}: ${said}`}>
        {lines.map((line) => (
          <path
            key={line.title}
            d={pathOf(line.values, most)}
            class={line.isBound === true ? 'bound' : 'line'}
            vector-effect="non-scaling-stroke"
          />
        ))}
      </svg>
      <p class="faint ends">
        <span>{times[0] === undefined ? '' : clockOf(times[0])}</span>
        <span>at most {shown(most)}</span>
        <span>{times.length === 0 ? '' : clockOf(times.at(-1) ?? '')}</span>
      </p>
      <details>
        <summary>As a table</summary>
        <table>
          <thead>
            <tr>
              <th scope="col">time</th>
              {lines.map((line) => (
                <th key={line.title} scope="col" class="number">
                  {line.title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {times.slice(-MOST_ROWS).map((time, row) => {
              const at = Math.max(0, times.length - MOST_ROWS) + row;
              return (
                <tr key={time}>
                  <th scope="row">{clockOf(time)}</th>
                  {lines.map((line) => {
                    const value = line.values[at] ?? null;
                    return (
                      <td key={line.title} class="number">
                        {value === null ? '' : shown(value)}
                      </td>
                    );
                  })}
                </tr>
              );
            })}
          </tbody>
        </table>
      </details>
    </figure>
  );
}
