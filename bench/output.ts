// A run's output: progress and the table to the terminal, one JSON object per line to a file.
import { mkdirSync, writeFileSync, appendFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Round } from './measure.ts';
import { isCpuFigure } from './cpu.ts';
import { short } from './table.ts';

export class Output {
  readonly #jsonPath: string;

  /** Empties the file, which must be writable before anything is measured. */
  constructor(jsonPath: string) {
    this.#jsonPath = jsonPath;
    mkdirSync(dirname(jsonPath), { recursive: true });
    writeFileSync(jsonPath, '');
  }

  say(line: string): void {
    process.stdout.write(`${line}\n`);
  }

  json(kind: string, value: object): void {
    appendFileSync(this.#jsonPath, `${JSON.stringify({ kind, ...value })}\n`);
  }

  round(suite: string, round: Round): void {
    this.json('round', { suite, ...round });
    const outside = `others used ${short(round.outside * 100)} % of the machine`;
    const verdict = round.isKept ? '' : `; DISCARDED, ${outside}`;
    const sides = [
      ...(round.baseline === undefined ? [] : [['baseline', round.baseline] as const]),
      ...(round.again === undefined ? [] : [['baseline again', round.again] as const]),
    ];
    const texts = [...sides, ['longshore', round.product] as const].map(
      ([name, figures]) =>
        `${name} ${Object.entries(figures)
          .filter(([measure]) => !isCpuFigure(measure))
          .map(([measure, value]) => `${measure} ${short(value)}`)
          .join(', ')}`,
    );
    this.say(`  ${suite} ${round.number}: ${texts.join(' | ')}${verdict}`);
  }
}
