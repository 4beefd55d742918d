// Grouping of all Redis commands of one turn of the event loop: one socket write, and one command for
// several of the same kind (the depth after the adds, leases, records). Separate socket writes and
// commands are most of the cost of a busy connection, and no answer is read before the turn ends anyway.
// Pipelines of ioredis are not used: each gets a hidden class that keeps what it reaches until a full collection of
// garbage (docs/decisions.md, 0277).
// Invariant: a deferred command is on its way before anything that is written after the turn. A run
// order to an agent ends the turn first (`endTurnNow`): its lease must leave this process before it.
import type { Redis } from 'ioredis';

interface Turn {
  /** Deferred work in order; records go after leases, because a final record drops its task's lease. */
  readonly works: (() => void)[];
  readonly last: (() => void)[];
  ending: NodeJS.Immediate | undefined;
  written: Promise<void> | undefined;
  /** Hands deferred bytes to the socket; undefined: there are none. */
  release: (() => void) | undefined;
}

const TURNS = new WeakMap<Redis, Turn>();
const CORKS = Symbol('writes of one turn go together');

/**
 * Calls back when everything of this turn has been written, before its bytes leave.
 * @param isLast - runs after all work without this flag
 */
export function atTurnEnd(client: Redis, work: () => void, isLast = false): void {
  const turn = turnOf(client);
  (isLast ? turn.last : turn.works).push(work);
  turn.ending ??= setImmediate(() => endTurn(turn));
}

/**
 * Ends this client's turn now: deferred work is written, and its bytes go to the
 * socket. For a caller that sends something elsewhere that must not overtake them.
 */
export function endTurnNow(client: Redis): void {
  const turn = turnOf(client);
  endTurn(turn);
  turn.release?.();
}

/**
 * Resolves when everything of this turn is in the socket. So news sent after
 * it cannot arrive before Redis is told. One promise for the whole turn.
 */
export function turnWritten(client: Redis): Promise<void> {
  const turn = turnOf(client);
  turn.written ??= new Promise((resolve) => {
    setImmediate(() => {
      turn.written = undefined;
      endTurn(turn);
      turn.release?.();
      resolve();
    });
  });
  return turn.written;
}

/** Makes the commands of one turn of this client leave in one write, also after a reconnect. */
export function writeTogether(client: Redis): void {
  const turn = turnOf(client);
  const cork = (): void => {
    const { stream } = client;
    if (stream === undefined || Reflect.get(stream, CORKS) === true) return;
    Reflect.set(stream, CORKS, true);
    const write = stream.write.bind(stream) as (...args: unknown[]) => boolean;
    let corked = false;
    Reflect.set(stream, 'write', (...args: unknown[]): boolean => {
      if (!corked) {
        corked = true;
        stream.cork();
        const release = (): void => {
          clearImmediate(immediate);
          endTurn(turn);
          corked = false;
          if (turn.release === release) turn.release = undefined;
          stream.uncork();
        };
        const immediate = setImmediate(release);
        turn.release = release;
      }
      return write(...args);
    });
  };
  client.on('connect', cork);
  cork();
}

function turnOf(client: Redis): Turn {
  let turn = TURNS.get(client);
  if (turn === undefined) {
    turn = { works: [], last: [], ending: undefined, written: undefined, release: undefined };
    TURNS.set(client, turn);
  }
  return turn;
}

function endTurn(turn: Turn): void {
  if (turn.ending === undefined) return;
  clearImmediate(turn.ending);
  turn.ending = undefined;
  const works = [...turn.works.splice(0), ...turn.last.splice(0)];
  for (const work of works) work();
}
