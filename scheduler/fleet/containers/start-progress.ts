/**
 * How the starts of containers go on: when something of a start changed last, and its agent's words. Agents report it
 * on their links, the replica of a link tells the others, and any replica may lead. Drains and rollouts ask here.
 * Something has changed when the start enters another phase, its pull gets on, or its program has read, received or
 * computed much more than before: a model that is loaded from a volume, or compiled, shows itself by nothing else.
 */
import type { ContainerId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { ObservedContainer__Output, Samples__Output } from '#shared/protocol/generated/messages.ts';
import type { Bus } from '../../cluster/bus.ts';
import type { ContainerEntry, StartSigns } from './container-entry.ts';
import type { ContainerRegistry } from './container-registry.ts';

/** Most characters of a pull's progress. */
const MOST_TEXT = 1024;
/** Growth of a program's bytes that counts as progress: more than a program that hangs needs by itself. */
const LOADED_BYTES = 32 * 1024 * 1024;
/** Processor time that counts as progress: a program that waits and looks again takes less within minutes. */
const COMPUTED_MICROSECONDS = 30_000_000;
/** Shortest time between two messages to the other replicas about one start. */
const TELL_MS = 5_000;

export interface StartProgressParts {
  readonly containers: Pick<ContainerRegistry, 'get' | 'onChange'>;
  readonly bus: Pick<Bus, 'on' | 'publish'>;
  readonly channel: string;
  readonly clock: Pick<Clock, 'monotonicMs'>;
}

/** Message to the other replicas. */
type Told = readonly [id: ContainerId, epoch: number, text: string];

export class StartProgress {
  readonly #parts: StartProgressParts;

  constructor(parts: StartProgressParts) {
    this.#parts = parts;
    parts.containers.onChange(({ entry, to }) => {
      // A container that is placed, or begins to start, has got on.
      if (to === 'PENDING') delete entry.start;
      else if (to === 'ASSIGNED' || to === 'STARTING') this.#change(entry, signsOf(entry));
    });
    parts.bus.on(parts.channel, (message) => {
      const [id, epoch, text] = message as Told;
      const entry = parts.containers.get(id);
      if (entry?.row.epoch === epoch) this.#change(entry, { ...signsOf(entry), text });
    });
  }

  /** An agent's report about a container. */
  reported(entry: ContainerEntry, { phase, message }: Pick<ObservedContainer__Output, 'phase' | 'message'>): void {
    if (phase === 'running' || phase === 'exited' || phase === 'removed') {
      delete entry.start;
      return;
    }
    const text = phase === 'pulling' ? message.slice(0, MOST_TEXT) : '';
    const before = signsOf(entry);
    if (before.phase === phase && before.text === text) return;
    this.#tell(entry, this.#change(entry, { ...before, phase, text }));
  }

  /** Samples of a machine's containers. */
  sampled({ containers }: Pick<Samples__Output, 'containers'>): void {
    for (const { containerId, cpuMicroseconds, memoryBytes, receivedBytes, since, gpu } of containers) {
      const entry = this.#parts.containers.get(containerId as ContainerId);
      if (entry?.row.state !== 'STARTING') continue;
      const before = signsOf(entry);
      const readBytes = before.readBytes + (since?.diskReadBytes ?? 0);
      const bytes = memoryBytes + receivedBytes + readBytes + Math.max(0, gpu?.memoryUsedBytes ?? 0);
      const hasLoaded = bytes >= before.loadedBytes + LOADED_BYTES;
      const hasComputed = cpuMicroseconds >= before.cpuMicroseconds + COMPUTED_MICROSECONDS;
      const signs = {
        ...before,
        readBytes,
        loadedBytes: hasLoaded ? bytes : before.loadedBytes,
        cpuMicroseconds: hasComputed ? cpuMicroseconds : before.cpuMicroseconds,
      };
      if (hasLoaded || hasComputed) this.#tell(entry, this.#change(entry, signs));
      else entry.start = signs;
    }
  }

  #change(entry: ContainerEntry, signs: StartSigns): StartSigns {
    const start = { ...signs, atMs: this.#parts.clock.monotonicMs() };
    entry.start = start;
    return start;
  }

  #tell(entry: ContainerEntry, start: StartSigns): void {
    if (start.atMs - start.toldAtMs < TELL_MS) return;
    entry.start = { ...start, toldAtMs: start.atMs };
    const told: Told = [entry.row.id, entry.row.epoch, start.text];
    this.#parts.bus.publish(this.#parts.channel, told);
  }
}

const signsOf = ({ start }: ContainerEntry): StartSigns =>
  start ?? { phase: '', text: '', atMs: 0, toldAtMs: -Infinity, loadedBytes: 0, cpuMicroseconds: 0, readBytes: 0 };
