// The witnesses of the kill rounds: a subscriber to the workspace's stream of events, and a server that receives its
// webhook. Both are there before the first task and stay to the end; only the scheduler comes and goes.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { sleep } from '#shared/backoff.ts';
import type { Client } from '#cli/client.ts';
import { follow } from '#cli/follow.ts';
import type { Caller } from '../soak/caller.ts';
import { objectOf } from '../soak/caller.ts';
import type { Workplace } from '../workplace.ts';
import { auditEvents } from './event-audit.ts';
import type { EventBooks, ToldEvent } from './event-audit.ts';

/** Settings of the scheduler that let its webhooks reach the receiver. */
export const WITNESS_SETTINGS = { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' };

const KINDS = 'task.*';
const PAGE = 10_000;
const POLL_MS = 2_000;
/** Time after the last task's end in which its events must reach everybody. */
const REACH_MS = 90_000;

export interface EventOutcome {
  readonly findings: readonly string[];
  readonly events: number;
  /** Deliveries of an event that had been delivered. */
  readonly again: number;
  /** Milliseconds from the end of the load until both witnesses had every event. */
  readonly reachedMs: number;
}

export class Witnesses {
  readonly #caller: Caller;
  readonly #streamed: number[];
  readonly #delivered: string[];
  readonly #failures: string[];

  private constructor(caller: Caller, books: Pick<Witnessed, 'streamed' | 'delivered' | 'failures'>) {
    this.#caller = caller;
    this.#streamed = books.streamed;
    this.#delivered = books.delivered;
    this.#failures = books.failures;
  }

  /** Begins to listen; both end with the workplace. */
  static async start(client: Client, caller: Caller, place: Workplace): Promise<Witnesses> {
    const books: Witnessed = { streamed: [], delivered: [], failures: [] };
    await receive(client, place, books.delivered);
    subscribe(client, place, books);
    return new Witnesses(caller, books);
  }

  /** Waits until both have every event of these tasks, then compares what each of them got. */
  async close(statuses: ReadonlyMap<string, string>, signal: AbortSignal): Promise<EventOutcome> {
    const startedAt = performance.now();
    let books: EventBooks;
    do {
      const history = await readHistory(this.#caller);
      books = { history, streamed: [...this.#streamed], delivered: [...this.#delivered], statuses };
    } while (
      auditEvents(books).length > 0 &&
      performance.now() - startedAt < REACH_MS &&
      (await sleep(POLL_MS, signal))
    );
    return {
      findings: [...this.#failures, ...auditEvents(books)],
      events: books.history.length,
      again: books.delivered.length - new Set(books.delivered).size,
      reachedMs: performance.now() - startedAt,
    };
  }
}

interface Witnessed {
  readonly streamed: number[];
  readonly delivered: string[];
  /** Ends of a witness that are none of the daemons' business. */
  readonly failures: string[];
}

async function receive(client: Client, place: Workplace, delivered: string[]): Promise<void> {
  const server = createServer((request, response) => {
    const id = request.headers['webhook-id'];
    request.resume().once('end', () => {
      if (typeof id === 'string') delivered.push(id);
      response.writeHead(204).end();
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  place.later(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => void server.close(resolve));
  });
  const { port } = server.address() as AddressInfo;
  await client.restCall('POST', `/webhook/${client.context.workspaceId}`, {
    url: `http://127.0.0.1:${port}/`,
    event_types: [KINDS],
    retry: true,
  });
}

function subscribe(client: Client, place: Workplace, { streamed, failures }: Witnessed): void {
  const ends = new AbortController();
  const path = `/events/${client.context.workspaceId}/stream?seq_num=1&event_types=${KINDS}`;
  const following = follow(client, path, {
    signal: ends.signal,
    onNote: () => undefined,
    onRecord: ({ data }) => {
      streamed.push(Number(objectOf(data)?.['seq_num']));
    },
  }).catch((error: unknown) => void failures.push(`stream_ended: ${String(error)}`));
  place.later(async () => {
    ends.abort();
    await following;
  });
}

async function readHistory(caller: Caller): Promise<readonly ToldEvent[]> {
  const pages: ToldEvent[][] = [];
  let before = '';
  for (;;) {
    const path = `/api/v1/events/${caller.workspaceId}/history?event_types=${KINDS}&limit=${PAGE}${before}`;
    const answer = await caller.ask(path);
    const page = objectOf(answer.text);
    if (answer.status !== 200 || page === undefined)
      throw new Error(`${answer.asked} was answered ${answer.status} ${answer.text.slice(0, 500)}`);
    pages.unshift((page['events'] as readonly EventRecord[]).map(toldOf).toSorted((a, b) => a.seq - b.seq));
    if (page['truncated'] !== true) return pages.flat();
    before = `&before_seq=${String(page['next_before_seq'])}`;
  }
}

interface EventRecord {
  readonly seq_num: number;
  readonly type: string;
  readonly task_id: string;
  readonly data: { readonly status: string; readonly attempt: number };
  readonly cloud_event: { readonly id: string };
}

const toldOf = ({ seq_num, type, task_id, data, cloud_event }: EventRecord): ToldEvent => ({
  seq: seq_num,
  id: cloud_event.id,
  type,
  taskId: task_id,
  status: data.status,
  attempt: data.attempt,
});
