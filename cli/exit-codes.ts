/**
 * Exit codes of every command. Source: decision 0234. `container exec`, `container attach` and `run … -- COMMAND` end
 * with the code of the program that ran; those of shells, 126 and 127, are theirs.
 */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  refused: 3,
  notFound: 4,
  unreachable: 5,
  timedOut: 124,
  cancelled: 125,
  cannotRun: 126,
  noProgram: 127,
  hungUp: 129,
  interrupted: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Their meanings, for documents. */
export const EXIT_MEANINGS: Readonly<Record<keyof typeof EXIT, string>> = {
  ok: 'done; a reader of the output that stops early (`| head`) is no failure',
  failed:
    'failed: the handler raised, a check failed, the scheduler is not ready, or anything else that has no code of its own',
  usage: 'the command line makes no sense, or a value on it',
  refused: 'not logged in, or the token is not accepted or may not do that',
  notFound: 'there is no such thing: a deployment, task, container, machine, name or id; or no GPU to check',
  unreachable: 'the installation does not answer, or the connection was lost',
  timedOut: 'the task of `task watch` ended as TIMEOUT or EXPIRED, as with `timeout`',
  cancelled: 'the task of `task watch` was CANCELLED',
  cannotRun: 'the program of `container exec` or `run` cannot be run',
  noProgram: 'the program of `container exec` or `run` is not there',
  hungUp: 'the terminal of `container exec` or `shell` was closed',
  interrupted: 'stopped by Ctrl-C',
};
