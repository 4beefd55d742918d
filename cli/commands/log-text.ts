// Lines of a log as people read them. Pure.
import { textField } from '../json.ts';
import type { JsonObject } from '../json.ts';

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
  #isDated = false;

  /** @param nameOf - of a deployment by its id; absent: all lines are of one */
  constructor(nowMs: number, nameOf?: (deploymentId: string) => string) {
    this.#nameOf = nameOf;
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
    const name = this.#nameOf === undefined ? '' : `${this.#nameOf(textField(line, 'deployment_id'))} `;
    return `${this.#isDated ? at : at.slice(DAY + 1)} ${container} ${name}${textField(line, 'message')}`;
  }
}
