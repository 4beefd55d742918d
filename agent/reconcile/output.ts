// What containers print, followed from their start (or adoption) to their end and handed to the log buffer. Owned by workbench.ts.
import type { Log } from '#shared/log.ts';
import type { LogPositions } from '../containers/log-positions.ts';
import type { LogBuffer } from '../containers/log-buffer.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { NO_PYTHON } from './starting.ts';

interface Following {
  readonly abort: AbortController;
  readonly done: Promise<void>;
}

export class ContainerOutput {
  readonly #runtime: ContainerRuntime;
  readonly #logs: LogBuffer;
  readonly #positions: LogPositions;
  readonly #log: Log;
  readonly #following = new Map<string, Following>();
  /** Containers whose init said that there is no such program as ours. */
  readonly #noPython = new Set<string>();

  constructor(parts: {
    readonly runtime: ContainerRuntime;
    readonly logs: LogBuffer;
    readonly positions: LogPositions;
    readonly log: Log;
  }) {
    this.#positions = parts.positions;
    this.#runtime = parts.runtime;
    this.#logs = parts.logs;
    this.#log = parts.log;
  }

  /** From its beginning (`start`), or from where an earlier agent came to. One that is followed already is let be. */
  follow(containerId: string, dockerId: string, from: 'start' | 'resume'): void {
    if (this.#following.has(containerId)) return;
    // Of what an agent without such notes has told nothing is known: rather lost than told twice.
    const now = new Date().toISOString().replace('Z', '000000Z');
    const since = from === 'start' ? '' : (this.#positions.resumeAt(containerId) ?? now);
    this.#positions.follow(containerId);
    const abort = new AbortController();
    const done = this.#runtime
      .followLogs(
        dockerId,
        since,
        (stream, line, position) => {
          if (NO_PYTHON.test(line)) this.#noPython.add(containerId);
          this.#logs.add(containerId, { taskId: '', stream, line, timestampMs: Date.now(), position });
        },
        abort.signal,
      )
      .catch((error: unknown) => {
        if (!abort.signal.aborted) this.#log.info({ containerId, err: error }, 'container log ended early');
      });
    this.#following.set(containerId, { abort, done });
  }

  /** Waits for the end of an exited container's output, at most so long. */
  async settle(containerId: string, ms: number): Promise<void> {
    const following = this.#following.get(containerId);
    if (following === undefined) return;
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([following.done, new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)))]);
    clearTimeout(timer);
  }

  /** Whether its init found no Python; told once. */
  takeNoPython(containerId: string): boolean {
    return this.#noPython.delete(containerId);
  }

  /** The container is gone. */
  forget(containerId: string): void {
    this.#following.get(containerId)?.abort.abort();
    this.#following.delete(containerId);
    this.#noPython.delete(containerId);
    this.#positions.forget(containerId);
  }

  /** Follows nothing any more; the containers go on. */
  async close(): Promise<void> {
    const following = [...this.#following.values()];
    for (const { abort } of following) abort.abort();
    await Promise.all(following.map(({ done }) => done));
  }
}
