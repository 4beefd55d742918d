// Lines of one build, for any number of readers: each gets all of them from the first one that is kept. The end of a
// long output is kept.

const MOST_BYTES = 256 * 1024;
const LEFT_OUT = '… earlier output is left out';

export interface BuildLine {
  readonly text: string;
  /** From the platform, not from a step. */
  readonly isNote: boolean;
}

/** The end of a build; `errMsg` empty: there is an image. */
export interface BuildOutcome {
  readonly errMsg: string;
}

export class Transcript {
  readonly #lines: BuildLine[] = [];
  /** Lines that were left out at the beginning. */
  #dropped = 0;
  #bytes = 0;
  #outcome: BuildOutcome | undefined;
  #more = Promise.withResolvers<void>();

  add(text: string, isNote = false): void {
    if (this.#outcome !== undefined) return;
    this.#lines.push({ text, isNote });
    this.#bytes += text.length + 1;
    while (this.#bytes > MOST_BYTES) {
      const first = this.#lines.shift();
      if (first === undefined) break;
      this.#bytes -= first.text.length + 1;
      this.#dropped += 1;
    }
    this.#tell();
  }

  end(outcome: BuildOutcome): void {
    this.#outcome ??= outcome;
    this.#tell();
  }

  get outcome(): BuildOutcome | undefined {
    return this.#outcome;
  }

  /** The kept lines as one text. */
  get text(): string {
    return [...(this.#dropped > 0 ? [LEFT_OUT] : []), ...this.#lines.map(({ text }) => text)].join('\n');
  }

  /** The lines as they come, and then the outcome. Ends early when the signal aborts. */
  async *read(signal: AbortSignal): AsyncGenerator<BuildLine, BuildOutcome | undefined> {
    const aborted = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
    let next = 0;
    while (!signal.aborted) {
      if (next < this.#dropped) {
        next = this.#dropped;
        yield { text: LEFT_OUT, isNote: true };
        continue;
      }
      const line = this.#lines[next - this.#dropped];
      if (line !== undefined) {
        next += 1;
        yield line;
      } else if (this.#outcome === undefined) await Promise.race([this.#more.promise, aborted]);
      else return this.#outcome;
    }
    return undefined;
  }

  #tell(): void {
    this.#more.resolve();
    this.#more = Promise.withResolvers<void>();
  }
}
