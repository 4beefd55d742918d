// How long the owners of tasks wait before they take something for lost.

/** Times that tests shorten. */
export interface TaskGraces {
  /** Beyond the execution limit, before the scheduler ends the task by itself. */
  readonly limitMs: number;
  /** How long a reconnected agent may take to name what it still has: unacknowledged results come right after its report. */
  readonly reportMs: number;
  readonly restartedAgentMs: number;
  /** By then every replica has heard which one a machine is linked to, and sends it nothing on a link that is no more. */
  readonly movedMs: number;
  /** From the hand-over to the start; and how long an agent may take to say that a synchronous task never began. */
  readonly claimMs: number;
  readonly claimAnswerMs: number;
  /** A machine that talks and does not name an attempt for so long has lost it. Six heartbeats, where its agent was told to send them less often than every ten seconds. */
  readonly leaseMs: number;
  /** After a start nothing is taken for lost: agents report first. */
  readonly silentMs: number;
  /**
   * Whoever does not hear of this process for 10 s takes it for dead, and gives back what it has fetched and not sent: when a fetch lies this far back, the lock is looked at before the task is sent.
   */
  readonly freshMs: number;
  /** A waiting caller's job that is not to be seen for so long is gone. */
  readonly goneMs: number;
  /** While Redis does not answer, a step is tried again this often. */
  readonly againMs: number;
  /** How long an end is tried again before its caller is answered all the same. */
  readonly endMs: number;
}

export const GRACES: TaskGraces = {
  limitMs: 10_000,
  reportMs: 2_000,
  restartedAgentMs: 10_000,
  movedMs: 10_000,
  claimMs: 15_000,
  claimAnswerMs: 5_000,
  leaseMs: 60_000,
  silentMs: 120_000,
  freshMs: 5_000,
  goneMs: 60_000,
  againMs: 500,
  endMs: 30_000,
};
