// What one turn of the event loop has for Redis leaves together: commands in one socket write, and of the same kind in one command (the depth behind the adds, leases, records). A socket write
// and a command of its own for each are most of what a busy connection costs, and nobody reads an answer before the turn ends anyway. What must stay true: whatever is put off is on its way before
// anything later that is written when the turn is over. A run order to an agent ends the turn first (`endTurnNow`): its lease must have left this process before it does.
import type { Redis } from 'ioredis';

interface Turn {
  /** In order; records go after leases, because a final record drops its task's lease. */
  readonly works: (() => void)[];
  readonly last: (() => void)[];
  ending: NodeJS.Immediate | undefined;
  written: Promise<void> | undefined;
  /** Hands to the socket what is held back for it; undefined: nothing is. */
  release: (() => void) | undefined;
}

const TURNS = new WeakMap<Redis, Turn>();
const CORKS = Symbol('writes of one turn go together');

/**
 * Calls back when everything of this turn has been written, before its bytes leave.
 * @param isLast - behind those that are not
 */
export function atTurnEnd(client: Redis, work: () => void, isLast = false): void {
  const turn = turnOf(client);
  (isLast ? turn.last : turn.works).push(work);
  turn.ending ??= setImmediate(() => endTurn(turn));
}

/** Ends this client's turn now: what was put off is written, and its bytes are handed to the socket. For whoever sends something elsewhere that must not overtake them. */
export function endTurnNow(client: Redis): void {
  const turn = turnOf(client);
  endTurn(turn);
  turn.release?.();
}

/** Resolves when everything of this turn has been handed to the socket: whoever is told something then cannot hear it before Redis is told. One promise for the whole turn. */
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

/** Has the commands of one turn of this client leave in one write, also after it connected anew. */
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
