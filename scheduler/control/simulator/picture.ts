// Pictures of a simulation, as SVG texts: GPUs by workspace over time, and waits. They are readable in light and dark.
// Pure.
import { CPU_MARKET } from '../../domain/shares.ts';
import type { Series } from './figures.ts';
import type { PolicyResult, Simulated } from './simulation.ts';

/** Colours that people with a weak sense of colour tell apart, too. The last one is that of all others. */
const COLOURS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#b3a100', '#8c8c8c'];
const OTHERS = 'others';
const MOST_DRAWN = COLOURS.length - 1;
/** Most steps of a line. */
const MOST_STEPS = 120;
const WIDTH = 760;
const LEFT = 56;
const RIGHT = 16;
const PANEL = 150;
const LINE = 18;

/** GPUs that workspaces hold, over the time of the trace: a panel for each policy. */
export function usePicture(all: readonly Simulated[], seconds: number): string {
  const drawn = drawnOf(all.map(({ result }) => result));
  const most = Math.max(1, ...all.map(({ result }) => capacityOf(result)));
  const hasGpus = all.some(({ result }) => result.markets.some(({ market }) => market !== CPU_MARKET));
  const parts: string[] = legend(drawn, 40);
  let top = 40 + LINE * legendRows(drawn) + 8;
  for (const { result, series } of all) {
    parts.push(text(LEFT, top + 12, result.policy, 'name'));
    parts.push(...panel(series, drawn, most, top + LINE, seconds, capacityOf(result)));
    top += LINE + PANEL + 30;
  }
  const title = `${hasGpus ? 'GPUs' : 'Cores'} by workspace`;
  return svg(title, top, [text(LEFT, 24, title, 'head'), ...parts]);
}

/** The wait of 95 of 100 tasks, by workspace and policy. */
export function waitsPicture(results: readonly PolicyResult[]): string {
  const drawn = drawnOf(results);
  const rows = drawn.names.flatMap((name, index) =>
    results.flatMap((result, at) => {
      const found = result.workspaces.find(({ workspace }) => workspace === name);
      return found === undefined ? [] : [{ name, at, policy: result.policy, index, p95: found.wait_seconds.p95 }];
    }),
  );
  const most = Math.max(1e-3, ...rows.map(({ p95 }) => p95));
  const from = 260;
  const parts: string[] = [];
  let top = 40;
  for (const { name, at, policy, index, p95 } of rows) {
    if (at === 0) {
      top += 8;
      parts.push(text(LEFT - 40, top + 13, short(name), 'name'));
    }
    const width = ((WIDTH - from - RIGHT - 70) * p95) / most;
    parts.push(text(from - 8, top + 13, policy, 'right'));
    parts.push(
      `<rect x="${from}" y="${top + 3}" width="${round(width)}" height="12" fill="${colourOf(drawn, index)}"><title>${escaped(`${name}, ${policy}: ${timeText(p95)}`)}</title></rect>`,
    );
    parts.push(text(from + width + 6, top + 13, timeText(p95)));
    top += LINE;
  }
  const title = 'Wait of 95 of 100 tasks, at most';
  return svg(title, top + 12, [text(LEFT - 40, 24, title, 'head'), ...parts]);
}

// ---- parts ----------------------------------------------------------------------------------------------------------

interface Drawn {
  /** The largest users. */
  readonly names: readonly string[];
  readonly hasOthers: boolean;
}

function drawnOf(results: readonly PolicyResult[]): Drawn {
  const held = new Map<string, number>();
  for (const { workspaces } of results)
    for (const { workspace, gpu_seconds, core_seconds } of workspaces)
      held.set(workspace, (held.get(workspace) ?? 0) + gpu_seconds + core_seconds / 1000);
  const names = [...held].toSorted(([a, some], [b, more]) => more - some || (a < b ? -1 : 1)).map(([name]) => name);
  return { names: names.slice(0, MOST_DRAWN), hasOthers: names.length > MOST_DRAWN };
}

const colourOf = ({ names }: Drawn, index: number): string =>
  COLOURS[index < names.length ? index : COLOURS.length - 1] ?? '';

/** Capacity of the markets that are drawn: those with GPUs, or `cpu` where none has any. */
function capacityOf({ markets }: PolicyResult): number {
  const withGpus = markets.filter(({ market }) => market !== CPU_MARKET);
  return (withGpus.length > 0 ? withGpus : markets).reduce((sum, { capacity }) => sum + capacity, 0);
}

const LEGEND_COLUMNS = 4;
const legendNames = ({ names, hasOthers }: Drawn): readonly string[] => (hasOthers ? [...names, OTHERS] : names);
const legendRows = (drawn: Drawn): number => Math.ceil(legendNames(drawn).length / LEGEND_COLUMNS);

const legend = (drawn: Drawn, top: number): string[] =>
  legendNames(drawn).flatMap((name, index) => {
    const x = LEFT + (index % LEGEND_COLUMNS) * ((WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS);
    const y = top + LINE * Math.floor(index / LEGEND_COLUMNS);
    return [
      `<rect x="${x}" y="${y}" width="11" height="11" fill="${colourOf(drawn, index)}"/>`,
      text(x + 17, y + 10, short(name)),
    ];
  });

function panel(
  series: Series,
  drawn: Drawn,
  most: number,
  top: number,
  seconds: number,
  capacity: number,
): readonly string[] {
  const steps = joined(series);
  const bottom = top + PANEL;
  const right = WIDTH - RIGHT;
  const x = (step: number): number =>
    LEFT + (right - LEFT) * Math.min(1, (step * steps.every) / Math.max(1e-9, seconds));
  const y = (amount: number): number => bottom - (PANEL * amount) / most;
  const parts: string[] = [];
  const below = steps.points.map(() => 0);
  for (const [index, name] of legendNames(drawn).entries()) {
    const isOthers = drawn.hasOthers && index === drawn.names.length;
    const amounts = steps.points.map((point) => (isOthers ? restOf(point, drawn.names) : (point.get(name) ?? 0)));
    const upper = amounts.map((amount, step) => (below[step] ?? 0) + amount);
    if (amounts.some((amount) => amount > 0))
      parts.push(
        `<path d="M${edge(upper, x, y)}L${edge(below, x, y, true)}Z" fill="${colourOf(drawn, index)}"><title>${escaped(name)}</title></path>`,
      );
    for (const [step, amount] of upper.entries()) below[step] = amount;
  }
  return [
    ...parts,
    `<path class="line" d="M${LEFT} ${bottom}H${right}"/>`,
    `<path class="line most" d="M${LEFT} ${round(y(capacity))}H${right}"/>`,
    text(LEFT - 6, y(capacity) + 4, String(Math.round(capacity)), 'right'),
    text(LEFT - 6, bottom + 4, '0', 'right'),
    text(LEFT, bottom + 16, '0'),
    text(right, bottom + 16, timeText(seconds), 'right'),
  ];
}

const restOf = (point: ReadonlyMap<string, number>, names: readonly string[]): number =>
  [...point].reduce((sum, [name, amount]) => (names.includes(name) ? sum : sum + amount), 0);

/** Points of a stepped line. @param isBack - from the right to the left */
function edge(
  amounts: readonly number[],
  x: (step: number) => number,
  y: (amount: number) => number,
  isBack = false,
): string {
  const points = amounts.flatMap((amount, step) => {
    const height = round(y(amount));
    return [`${round(x(step))} ${height}`, `${round(x(step + 1))} ${height}`];
  });
  return (isBack ? points.toReversed() : points).join('L');
}

/** A series with fewer points: neighbours are joined. */
function joined({ every, points }: Series): Series {
  const each = Math.ceil(points.length / MOST_STEPS);
  if (each <= 1) return { every, points };
  const fewer = Array.from({ length: Math.ceil(points.length / each) }, (_none, index) => {
    const some = points.slice(index * each, (index + 1) * each);
    const sum = new Map<string, number>();
    for (const point of some)
      for (const [name, amount] of point) sum.set(name, (sum.get(name) ?? 0) + amount / some.length);
    return sum;
  });
  return { every: every * each, points: fewer };
}

const LONGEST = 20;
const short = (name: string): string => (name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name);
const round = (value: number): number => Math.round(value * 10) / 10;

const text = (x: number, y: number, value: string, kind = ''): string =>
  `<text x="${round(x)}" y="${round(y)}"${kind === '' ? '' : ` class="${kind}"`}>${escaped(value)}</text>`;

/** `2.5 s`, `4 min`, `3.5 h`, `7 d`. */
function timeText(seconds: number): string {
  const unit = UNITS.find(([, size]) => seconds >= 2 * size) ?? (['s', 1] as const);
  const value = seconds / unit[1];
  return `${value < 10 ? Math.round(value * 10) / 10 : Math.round(value)} ${unit[0]}`;
}
const UNITS = [
  ['d', 86_400],
  ['h', 3600],
  ['min', 60],
] as const;

const ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (value: string): string => value.replaceAll(/[&<>"]/g, (one) => ESCAPES[one] ?? one);

const STYLE = `text{font:12px system-ui,sans-serif;fill:#24292f}.head{font-weight:bold;font-size:14px}.name{font-weight:bold}
.right{text-anchor:end}.page{fill:#ffffff;stroke:#d0d7de}.line{stroke:#57606a;fill:none}.most{stroke-dasharray:4 3}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117;stroke:#30363d}.line{stroke:#8b949e}}`;

const svg = (title: string, height: number, parts: readonly string[]): string =>
  [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" role="img">`,
    `<title>${escaped(title)}</title>`,
    `<style>${STYLE}</style>`,
    `<rect class="page" x="0.5" y="0.5" width="${WIDTH - 1}" height="${height - 1}" rx="8"/>`,
    ...parts,
    '</svg>',
    '',
  ].join('\n');
