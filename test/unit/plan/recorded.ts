// A recording in memory, which is replayed from its text.
import type { Line, Tape } from '#scheduler/control/plan/recording.ts';
import { Replay } from '#scheduler/control/plan/replay.ts';
import type { Difference } from '#scheduler/control/plan/replay.ts';

export class Recorded implements Tape {
  readonly lines: string[] = [];

  write(line: Line): boolean {
    this.lines.push(JSON.stringify(line));
    return true;
  }

  /** @returns the first answer that is another one than was recorded */
  replayed(): Difference | undefined {
    const replay = new Replay();
    for (const line of this.lines) {
      const difference = replay.play(JSON.parse(line) as Line);
      if (difference !== undefined) return difference;
    }
    return undefined;
  }
}
