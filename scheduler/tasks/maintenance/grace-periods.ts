// Waits before the owners of tasks take something for lost.

/** Times in milliseconds, which tests shorten. */
export interface GracePeriods {
  /** Time beyond the execution limit before the scheduler ends the task by itself. */
  readonly limitMs: number;
  /**
   * Time in which a reconnected agent must name what it still has: unacknowledged results come right after its report.
   */
  readonly reportMs: number;
  readonly restartedAgentMs: number;
  /** Time within which every replica hears of a machine's new link, and sends nothing on the old one. */
  readonly movedMs: number;
  /**
   * Time from the hand-over to the start; also the time in which an agent must say that a synchronous task never began.
   */
  readonly claimMs: number;
  readonly claimAnswerMs: number;
  /**
   * Time after which an attempt is lost that its talking machine does not name.
   * Six heartbeats, where its agent sends them less often than every ten seconds.
   */
  readonly leaseMs: number;
  /** Time after a start in which nothing is taken for lost: agents report first. */
  readonly silentMs: number;
  /**
   * Age of a fetch beyond which the lock is checked before the task is sent. After 10 s of silence the
   * other replicas take this process for dead, and give back jobs that it fetched and did not send.
   */
  readonly freshMs: number;
  /** Time after which a waiting caller's job that cannot be seen is gone. */
  readonly goneMs: number;
  /** Interval between tries of a step while Redis does not answer. */
  readonly againMs: number;
  /** Time for which an end is tried again before its caller is answered all the same. */
  readonly endMs: number;
}

export const GRACE_PERIODS: GracePeriods = {
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
