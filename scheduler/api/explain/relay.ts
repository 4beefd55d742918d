// Asks the leader, from any replica, for what only the leader has or does: facts for explanations, and recordings of
// placement. A question is one message there and one back. Without a reply in time the explanation does without facts.
import { randomUUID } from 'node:crypto';
import type { ExplainedGrowth, ExplainedScaling } from '#shared/api/explain.ts';
import type { QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import type { Bus } from '../../cluster/bus.ts';
import type { ReservationRow } from '../../control/plan/reservation-report.ts';
import type { ShareRow } from '../../control/plan/share-report.ts';
import type { WaitingLook } from './waiting.ts';
import { notLeading } from '../../control/placement/recordings.ts';
import type { Recording, RecordingRequest } from '../../control/placement/recordings.ts';

export interface RelayParts {
  readonly bus: Bus;
  readonly channel: string;
  readonly isLeader: () => boolean;
  readonly log: Log;
  /** Time to wait for an answer; 2 s when absent. */
  readonly timeoutMs?: number;
}

/** A question: about queues, a pool, recordings, reservations; what waits or is shared, of one workspace or of all. */
type Question =
  | { readonly queue: QueueName }
  | { readonly queues: readonly QueueName[] }
  | { readonly poolId: number; readonly isAdmin: boolean }
  | { readonly recording: RecordingRequest }
  | { readonly reservations: true }
  | { readonly waitingOf: WorkspaceId | null }
  | { readonly sharesOf: WorkspaceId | null };
interface Answer {
  /** null: another question, or the leader could not tell. */
  readonly scaling: ExplainedScaling | null;
  /** null: another question, or the pool has no provider. */
  readonly growth: ExplainedGrowth | null;
  /** Explanations of several queues, in their order. Absent: another question, or the leader could not tell. */
  readonly scalings?: readonly ExplainedScaling[];
  /** Absent: another question, or the leader could not tell. */
  readonly shares?: readonly ShareRow[];
  /** Absent: another question, or the leader could not tell. */
  readonly reserved?: readonly ReservationRow[];
  /** Absent: another question, or the leader could not tell. */
  readonly waiting?: WaitingLook;
  /** Absent: another question, or the leader could not tell. */
  readonly recordings?: readonly Recording[] | { readonly refused: string; readonly text: string };
}
type Message = (Question & { readonly ask: string }) | (Answer & { readonly answer: string });

const NO_ANSWER: Answer = { scaling: null, growth: null };

const TIMEOUT_MS = 2_000;
/** Queues of one question. */
export const MOST_QUEUES = 200;
/** Most questions under way; further ones are not asked. */
const MOST_ASKED = 1_000;

export class ScalingRelay {
  readonly #parts: RelayParts;
  readonly #asked = new Map<string, (answer: Answer) => void>();

  #explain: (queue: QueueName) => Promise<ExplainedScaling | null> = () => Promise.resolve(null);
  #explainAll: (queues: readonly QueueName[]) => Promise<readonly ExplainedScaling[]> = () => Promise.resolve([]);
  #explainPool: (poolId: number, isAdmin: boolean) => ExplainedGrowth | null = () => null;

  #record: (request: RecordingRequest) => Promise<readonly Recording[]> = () => Promise.reject(notLeading());

  #sharesOf: (workspaceId: WorkspaceId | null) => readonly ShareRow[] = () => [];

  #reserved: () => readonly ReservationRow[] = () => [];

  #waiting: ((workspaceId: WorkspaceId | null) => WaitingLook) | undefined;

  constructor(parts: RelayParts) {
    this.#parts = parts;
    parts.bus.on(parts.channel, (message) => this.#heard(message as Message));
  }

  /** Called on the leader. The handler explains the queue. */
  onAsked(handler: (queue: QueueName) => Promise<ExplainedScaling>): void {
    this.#explain = handler;
  }

  /** Called on the leader. The handler explains several queues, in their order. */
  onAskedOfAll(handler: (queues: readonly QueueName[]) => Promise<readonly ExplainedScaling[]>): void {
    this.#explainAll = handler;
  }

  /** Called on the leader. The handler explains the growth of the pool. */
  onAskedOfPool(handler: (poolId: number, isAdmin: boolean) => ExplainedGrowth | null): void {
    this.#explainPool = handler;
  }

  /** Called on the leader. The handler begins, ends or lists recordings. */
  onAskedToRecord(handler: (request: RecordingRequest) => Promise<readonly Recording[]>): void {
    this.#record = handler;
  }

  /** Called on the leader. The handler lists shares of the workspace, or of all. */
  onAskedOfShares(handler: (workspaceId: WorkspaceId | null) => readonly ShareRow[]): void {
    this.#sharesOf = handler;
  }

  /** Called on the leader. The handler lists machines that are kept for containers that wait. */
  onAskedOfReservations(handler: () => readonly ReservationRow[]): void {
    this.#reserved = handler;
  }

  /** Called on the leader. The handler looks at containers that wait, of the workspace or of all. */
  onAskedOfWaiting(handler: (workspaceId: WorkspaceId | null) => WaitingLook): void {
    this.#waiting = handler;
  }

  /**
   * Containers that wait for a machine, as the leader sees them.
   * @throws AppError `not_leading`: no leader answered in time
   */
  async waiting(workspaceId: WorkspaceId | null): Promise<WaitingLook> {
    const { waiting } = await this.#ask({ waitingOf: workspaceId });
    if (waiting === undefined) throw notLeading();
    return waiting;
  }

  /**
   * Machines that the leader keeps for containers that wait.
   * @throws AppError `not_leading`: no leader answered in time
   */
  async reservations(): Promise<readonly ReservationRow[]> {
    const { reserved } = await this.#ask({ reservations: true });
    if (reserved === undefined) throw notLeading();
    return reserved;
  }

  /**
   * Shares of a workspace, or of all, as the leader counts them.
   * @throws AppError `not_leading`: no leader answered in time
   */
  async shares(workspaceId: WorkspaceId | null): Promise<readonly ShareRow[]> {
    const { shares } = await this.#ask({ sharesOf: workspaceId });
    if (shares === undefined) throw notLeading();
    return shares;
  }

  /**
   * Recordings of the leader, or the one that began or ended.
   * @throws AppError `not_leading`: no leader answered in time; and the leader's refusals
   */
  async recording(request: RecordingRequest): Promise<readonly Recording[]> {
    const { recordings } = await this.#ask({ recording: request });
    if (recordings === undefined) throw notLeading();
    if ('refused' in recordings) throw new AppError(recordings.refused, recordings.text);
    return recordings;
  }

  /** The leader's explanation of a queue; null: no leader answered in time. */
  async scaling(queue: QueueName): Promise<ExplainedScaling | null> {
    return (await this.#ask({ queue })).scaling;
  }

  /** The leader's explanations of at most MOST_QUEUES queues, in their order; null: no leader answered in time. */
  async scalings(queues: readonly QueueName[]): Promise<readonly ExplainedScaling[] | null> {
    const { scalings } = await this.#ask({ queues: queues.slice(0, MOST_QUEUES) });
    return scalings?.length === queues.length ? scalings : null;
  }

  /** The leader's explanation of a pool; null: the pool has no provider, or no leader answered in time. */
  async growth(poolId: number, isAdmin: boolean): Promise<ExplainedGrowth | null> {
    return (await this.#ask({ poolId, isAdmin })).growth;
  }

  async #ask(question: Question): Promise<Answer> {
    const { isLeader, bus, channel, timeoutMs } = this.#parts;
    if (isLeader()) return await this.#own(question);
    if (this.#asked.size >= MOST_ASKED) return NO_ANSWER;
    const ask = randomUUID();
    return await new Promise((resolve) => {
      const done = (answer: Answer): void => {
        clearTimeout(timer);
        this.#asked.delete(ask);
        resolve(answer);
      };
      const timer = setTimeout(() => done(NO_ANSWER), timeoutMs ?? TIMEOUT_MS);
      this.#asked.set(ask, done);
      bus.publish(channel, { ...question, ask } satisfies Message);
    });
  }

  #heard(message: Message): void {
    if ('answer' in message) {
      this.#asked.get(message.answer)?.(message);
      return;
    }
    if (!this.#parts.isLeader() || this.#asked.has(message.ask)) return;
    void this.#own(message).then((answer) =>
      this.#parts.bus.publish(this.#parts.channel, { ...answer, answer: message.ask } satisfies Message),
    );
  }

  async #own(question: Question): Promise<Answer> {
    try {
      if ('recording' in question) return { ...NO_ANSWER, recordings: await this.#recorded(question.recording) };
      if ('reservations' in question) return { ...NO_ANSWER, reserved: this.#reserved() };
      if ('waitingOf' in question) {
        const waiting = this.#waiting?.(question.waitingOf);
        return waiting === undefined ? NO_ANSWER : { ...NO_ANSWER, waiting };
      }
      if ('sharesOf' in question) return { ...NO_ANSWER, shares: this.#sharesOf(question.sharesOf) };
      if ('poolId' in question) return { scaling: null, growth: this.#explainPool(question.poolId, question.isAdmin) };
      if ('queues' in question) return { ...NO_ANSWER, scalings: await this.#explainAll(question.queues) };
      return { scaling: await this.#explain(question.queue), growth: null };
    } catch (error) {
      this.#parts.log.warn({ err: error, question }, 'a question to the leader could not be answered');
      return NO_ANSWER;
    }
  }

  async #recorded(request: RecordingRequest): Promise<NonNullable<Answer['recordings']>> {
    try {
      return await this.#record(request);
    } catch (error) {
      if (error instanceof AppError) return { refused: error.code, text: error.message };
      throw error;
    }
  }
}
