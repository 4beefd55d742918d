// Colours of a terminal: whether a stream shows them, and which a state or a name has. Pipes, `--json`, `--no-color`,
// NO_COLOR and TERM=dumb have none.
import util from 'node:util';

export type Style = 'red' | 'green' | 'yellow' | 'blue' | 'magenta' | 'cyan' | 'dim' | 'bold';

/** The first releases of Node 20 lack the function. */
const styleText = (util as Partial<Pick<typeof util, 'styleText'>>).styleText;

let isAllowed = true;

/** Says for the command that begins whether it may use colours at all. */
export function allowColours(argv: readonly string[]): void {
  const end = argv.indexOf('--');
  const own = end === -1 ? argv : argv.slice(0, end);
  isAllowed = !own.includes('--no-color') && !own.includes('--json');
}

/** The text in that style, where the stream shows colours. */
export function painted(style: Style | undefined, text: string, stream: NodeJS.WriteStream): string {
  if (style === undefined || text === '' || !showsColours(stream)) return text;
  return styleText?.(style, text, { validateStream: false }) ?? text;
}

/** NO_COLOR and TERM are read by Node. */
export const showsColours = (stream: NodeJS.WriteStream): boolean => isAllowed && stream.isTTY && stream.hasColors();

const STATES: Readonly<Record<'red' | 'green' | 'yellow', ReadonlySet<string>>> = {
  red: new Set(
    'error failed failing timeout expired degraded lost dead unhealthy unprobed disconnected offline revoked refused open missing'.split(
      ' ',
    ),
  ),
  green: new Set('complete healthy running ready available connected delivered done active current yes'.split(' ')),
  yellow: new Set(
    'pending retry waiting scaling busy assigned starting stopping draining deleting registered building queued unknown excluded cordoned'.split(
      ' ',
    ),
  ),
};

/** Style of a state by its first word, such as that of `available (cordoned)`; undefined: it has none. */
export function styleOfState(state: string): Style | undefined {
  if (/\((.*, )?cordoned/.test(state)) return 'yellow';
  const word = /^[a-z]+/i.exec(state)?.[0].toLowerCase() ?? '';
  return (['red', 'green', 'yellow'] as const).find((style) => STATES[style].has(word));
}

const OF_NAMES = ['cyan', 'magenta', 'blue', 'green', 'yellow'] as const satisfies readonly Style[];

/** The same style for the same name, in every run. */
export function styleOfName(name: string): Style {
  let sum = 0;
  for (const character of name) sum = (sum * 31 + (character.codePointAt(0) ?? 0)) % 65_521;
  return OF_NAMES[sum % OF_NAMES.length] ?? 'cyan';
}
