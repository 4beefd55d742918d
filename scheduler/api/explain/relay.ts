// Asks the leader, from any replica, for facts that only the leader has. A question is one message there and one back.
// Without a reply in time the explanation does without these facts.
import { randomUUID } from 'node:crypto';
import type { ExplainedScaling } from '#shared/api/explain.ts';
import type { QueueName } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { Bus } from '../../cluster/bus.ts';

export interface RelayParts {
  readonly bus: Bus;
  readonly channel: string;
  readonly isLeader: () => boolean;
  readonly log: Log;
  /** Time to wait for an answer; 2 s when absent. */
  readonly timeoutMs?: number;
}

type Message =
  | { readonly ask: string; readonly queue: QueueName }
  | { readonly answer: string; readonly scaling: ExplainedScaling | null };

const TIMEOUT_MS = 2_000;
/** Most questions under way; further ones are not asked. */
const MOST_ASKED = 1_000;

export class ScalingRelay {
  readonly #parts: RelayParts;
  readonly #asked = new Map<string, (scaling: ExplainedScaling | null) => void>();

  #explain: (queue: QueueName) => Promise<ExplainedScaling | null> = () => Promise.resolve(null);

  constructor(parts: RelayParts) {
    this.#parts = parts;
    parts.bus.on(parts.channel, (message) => this.#heard(message as Message));
  }

  /** Called on the leader. The handler explains the queue. */
  onAsked(handler: (queue: QueueName) => Promise<ExplainedScaling>): void {
    this.#explain = handler;
  }

  /** The leader's explanation of a queue; null: no leader answered in time. */
  async scaling(queue: QueueName): Promise<ExplainedScaling | null> {
    const { isLeader, bus, channel, timeoutMs } = this.#parts;
    if (isLeader()) return await this.#own(queue);
    if (this.#asked.size >= MOST_ASKED) return null;
    const ask = randomUUID();
    return await new Promise((resolve) => {
      const done = (scaling: ExplainedScaling | null): void => {
        clearTimeout(timer);
        this.#asked.delete(ask);
        resolve(scaling);
      };
      const timer = setTimeout(() => done(null), timeoutMs ?? TIMEOUT_MS);
      this.#asked.set(ask, done);
      bus.publish(channel, { ask, queue } satisfies Message);
    });
  }

  #heard(message: Message): void {
    if ('answer' in message) {
      this.#asked.get(message.answer)?.(message.scaling);
      return;
    }
    if (!this.#parts.isLeader() || this.#asked.has(message.ask)) return;
    void this.#own(message.queue).then((scaling) =>
      this.#parts.bus.publish(this.#parts.channel, { answer: message.ask, scaling } satisfies Message),
    );
  }

  async #own(queue: QueueName): Promise<ExplainedScaling | null> {
    try {
      return await this.#explain(queue);
    } catch (error) {
      this.#parts.log.warn({ err: error, queue }, 'scaling could not be explained');
      return null;
    }
  }
}
