// The log of a container as an attached caller reads it, to the end of the container.
import { sleep } from '#shared/backoff.ts';
import { isTerminalContainer } from '#shared/domain/status.ts';
import type { Access, ReachedContainer } from '../../../fleet/inside/access.ts';
import type { LogReads } from '../../../fleet/logs/log-service.ts';

/** A piece of output; the last one is `done`. */
export interface Said {
  readonly output: string;
  readonly done?: boolean;
  readonly exitCode?: number;
}

/** Interval of looks at the log. */
const LOOK_MS = 1_000;
/** Time for the last lines of a container that has ended to come. */
const LAST_LINES_MS = 3_000;
const LINES = 500;
/** Exit code of a container that no program's own tells: of one that was lost. */
const UNKNOWN_EXIT = 1;

/** Gives the lines, as far as they have come to the scheduler. */
export async function* attachedLog(
  {
    access,
    logs,
    container,
  }: {
    readonly access: Pick<Access, 'find'>;
    readonly logs: LogReads;
    readonly container: ReachedContainer;
  },
  left: AbortSignal,
): AsyncGenerator<Said> {
  const { containerId, workspaceId } = container;
  let afterSeq = 0;
  for (;;) {
    const { state, exitCode } = await access.find(containerId, { workspaceId });
    const isOver = isTerminalContainer(state);
    if (isOver && !(await sleep(LAST_LINES_MS, left))) return;
    for (;;) {
      const { lines, isFull } = await logs.read(workspaceId, { containerId, afterSeq, limit: LINES, page: 0 });
      const last = lines.at(-1);
      if (left.aborted) return;
      if (last === undefined) break;
      afterSeq = last.seq;
      yield { output: lines.map(({ line }) => `${line}\n`).join('') };
      if (!isFull) break;
    }
    if (left.aborted) return;
    if (isOver) return yield { output: '', done: true, exitCode: exitCode ?? UNKNOWN_EXIT };
    if (!(await sleep(LOOK_MS, left))) return;
  }
}
