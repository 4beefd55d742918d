// Lines of a log as people read them. Pure.
import { styleOfName } from '../colours.ts';
import type { Style } from '../colours.ts';
import { textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { withoutControls } from '../print.ts';

const DAY = 'yyyy-mm-dd'.length;
const TO_MILLISECONDS = 'yyyy-mm-ddThh:mm:ss.mmm'.length;

/**
 * Writes lines as `10:00:00.000 c69a6597 text`, in UTC; lines of several deployments have a name in front of the text.
 * The date stands in front from the first line on that is of another day than the command's start. Dates never go away
 * again, so a log that goes on over midnight stays clear.
 */
export class LogText {
  readonly #today: string;
  readonly #nameOf: ((deploymentId: string) => string) | undefined;
  readonly #paint: (style: Style, text: string) => string;
  #isDated = false;

  /**
   * @param nameOf - of a deployment by its id; absent: all lines are of one
   * @param paint - gives a text its colour; absent: none has
   */
  constructor(
    nowMs: number,
    nameOf?: (deploymentId: string) => string,
    paint: (style: Style, text: string) => string = (_, text) => text,
  ) {
    this.#nameOf = nameOf;
    this.#paint = paint;
    this.#today = new Date(nowMs).toISOString().slice(0, DAY);
  }

  /** Gives lines that are shown together the same form. */
  expect(lines: readonly JsonObject[]): void {
    this.#isDated ||= lines.some((line) => textField(line, 'timestamp').slice(0, DAY) !== this.#today);
  }

  of(line: JsonObject): string {
    this.expect([line]);
    const at = textField(line, 'timestamp').slice(0, TO_MILLISECONDS).replace('T', ' ');
    const container = textField(line, 'container_id').slice(-8);
    const message = textField(line, 'message');
    const text = textField(line, 'stream') === 'stderr' ? this.#paint('red', message) : message;
    return `${this.#paint('dim', `${this.#isDated ? at : at.slice(DAY + 1)} ${container}`)} ${this.#named(line)}${text}`;
  }

  #named(line: JsonObject): string {
    if (this.#nameOf === undefined) return '';
    const name = withoutControls(this.#nameOf(textField(line, 'deployment_id')));
    return `${this.#paint(styleOfName(name), name)} `;
  }
}
