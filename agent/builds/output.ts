// The builder's output as events: steps by their titles, lines of output, and what explains a failure.
import { stripVTControlCharacters } from 'node:util';
import { cut } from '#shared/protocol/build-events.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';

const MOST_LINE = 2000;
/** Bound on a build's lines; the last ones of a failing step are told with the failure. */
const MOST_LINES = 20_000;
const LAST_LINES = 20;
const STEP = /^Step (\d+)\/(\d+) : /;
/** Lines of the builder about its own containers and layers. */
const NOISE =
  /^(?: ---> [0-9a-f]{12}| ---> Running in [0-9a-f]{12}|Removing intermediate container [0-9a-f]{12}|Successfully built [0-9a-f]{12}|Successfully tagged .*|)$/;
/** Words of shells, as `/bin/sh: 1: git: not found` and `bash: line 1: git: command not found`. */
const MISSING = /: ([\w.+-]{1,100}): (?:command )?not found$/;
const UNTRUSTED = /CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError|certificate verify failed/i;

export class BuildOutput {
  #titles: readonly (string | undefined)[] = [];
  readonly #tell: (event: BuildEvent) => void;
  readonly #of: number;
  #rest = '';
  /** Instructions that began. */
  #begun = 0;
  #step = 0;
  #title = '';
  #lines = 0;
  #last: string[] = [];
  #isUntrusted = false;

  /** @param of - steps of the whole build that people are told of */
  constructor(of: number, tell: (event: BuildEvent) => void) {
    this.#of = of;
    this.#tell = tell;
  }

  /**
   * Begins a run of the engine's builder.
   * @param titles - of each of its instructions; undefined: nobody is told of it
   */
  instructions(titles: readonly (string | undefined)[]): void {
    this.end();
    this.#titles = titles;
    this.#begun = 0;
  }

  /** Begins a step that runs apart; its output comes by `line`. */
  stepApart(title: string): void {
    this.instructions([title]);
    this.#begin();
  }

  /** Takes a line of a step that runs apart. */
  line(text: string): void {
    this.#take(stripVTControlCharacters(text));
  }

  reused(): void {
    this.#take(REUSED);
  }

  push(text: string): void {
    const lines = (this.#rest + stripVTControlCharacters(text)).split(/\r\n|\n|\r/);
    this.#rest = (lines.pop() ?? '').slice(0, MOST_LINE);
    for (const line of lines) this.#line(line);
  }

  /** Tells of a line that was never ended. */
  end(): void {
    if (this.#rest !== '') this.#line(this.#rest);
    this.#rest = '';
  }

  /** The failure, with its step and the last lines. @param message - the engine's own words */
  failed(message: string): BuildEvent {
    const code = /returned a non-zero code: (\d+)/.exec(message)?.[1];
    const what = code === undefined ? message : `exit code ${code}${code === '137' ? whyKilled : ''}`;
    const why = this.#isUntrusted ? `. ${UNTRUSTED_TEXT}` : code === '127' ? this.#missingProgram() : '';
    const last = this.#last.join('\n');
    const where = this.#title === '' ? '' : `step ${this.#step} of ${this.#of} failed (${this.#title}): `;
    return {
      failed: cut(`${where}${what}${why}${last === '' ? '' : `\n${last.slice(-2500)}`}`),
      step: cut(this.#title),
    };
  }

  /** The cure where a shell did not find a program; '': its words are others. */
  #missingProgram(): string {
    const name = this.#last.map((line) => MISSING.exec(line)?.[1]).find((found) => found !== undefined);
    return name === undefined
      ? ''
      : `. The image has no program ${name}: an earlier step must install it, or base_image name an image that has it`;
  }

  #line(line: string): void {
    const step = STEP.exec(line);
    if (step !== null && Number(step[1]) === this.#begun + 1 && Number(step[2]) === this.#titles.length) {
      this.#begin();
      return;
    }
    if (NOISE.test(line)) return;
    this.#take(line);
  }

  #take(line: string): void {
    if (UNTRUSTED.test(line)) this.#isUntrusted = true;
    const text = line === ' ---> Using cache' ? REUSED : line.slice(0, MOST_LINE);
    // Steps of ours are nobody's business, unless they fail.
    if (this.#titles[this.#begun - 1] === undefined && this.#begun > 0) return;
    this.#last.push(text);
    if (this.#last.length > LAST_LINES) this.#last.shift();
    this.#lines += 1;
    if (this.#lines <= MOST_LINES) this.#tell({ text });
    else if (this.#lines === MOST_LINES + 1)
      this.#tell({ note: `more than ${MOST_LINES} lines: the rest is left out` });
  }

  #begin(): void {
    const title = this.#titles[this.#begun];
    this.#begun += 1;
    this.#last = [];
    if (title === undefined) return;
    this.#step += 1;
    this.#title = title;
    this.#tell({ step: this.#step, of: this.#of, title: cut(title) });
  }
}

const REUSED = 'unchanged: its layer is used again';
const whyKilled = ' (killed, probably for want of memory)';
const UNTRUSTED_TEXT =
  "The certificate of the package index is not trusted in the build, although pip may speak of a missing distribution: the machine's operator names the certificates of the network's proxy with LONGSHORE_CA_BUNDLE";
