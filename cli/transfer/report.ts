// The counts of a copy, and the line that shows them on a terminal.
import { endProgress, progress } from '../print.ts';
import { rateText } from './rate.ts';

export interface Failure {
  readonly path: string;
  readonly message: string;
}

const EVERY_MS = 200;
/** Failures that are kept with their texts. */
const MOST_FAILURES = 1_000;

export class Report {
  files = 0;
  /** Bytes of files that were sent or received. */
  bytes = 0;
  /** Files that were there already, with the same size and time of change. */
  same = 0;
  /** Links, pipes and devices. */
  leftOut = 0;
  failures = 0;
  readonly failed: Failure[] = [];
  totalFiles = 0;
  totalBytes = 0;
  readonly #startMs = performance.now();
  readonly #isShown: boolean;
  #shownMs = 0;

  constructor(isShown: boolean) {
    this.#isShown = isShown;
  }

  get seconds(): number {
    return Math.round(performance.now() - this.#startMs) / 1000;
  }

  fail(path: string, message: string): void {
    this.failures += 1;
    if (this.failed.length < MOST_FAILURES) this.failed.push({ path, message });
  }

  /** @param bytes - negative: an attempt that failed moved them in vain */
  moved(bytes: number): void {
    this.bytes += bytes;
    if (!this.#isShown) return;
    const nowMs = performance.now();
    if (nowMs - this.#shownMs < EVERY_MS) return;
    this.#shownMs = nowMs;
    const far = rateText(this.bytes, this.totalBytes, (nowMs - this.#startMs) / 1000);
    progress(`${this.files} of ${this.totalFiles} files, ${far}`);
  }

  end(): void {
    if (this.#isShown) endProgress();
  }
}
