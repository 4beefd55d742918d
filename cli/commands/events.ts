// `longshore events`: what happened in the workspace, oldest first; `--follow` goes on with what comes. A stream that
// breaks is dialled again from the event after the last one.
import { backoffMs, sleep } from '#shared/backoff.ts';
import { isRecord } from '#shared/json.ts';
import { Client } from '../client.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { CliError } from '../errors.ts';
import type { EventsFlags } from '../flags.ts';
import { listField, numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { linesOf } from '../lines.ts';
import { note, print } from '../print.ts';
import { Outage } from '../outage.ts';

type Env = Readonly<Record<string, string | undefined>>;

const AGAIN = { baseMs: 500, capMs: 10_000, floorMs: 250 } as const;

/** Prints events oldest first; `signal` ends following (Ctrl-C does it for a person). */
export async function runEvents(
  flags: EventsFlags,
  options: GlobalOptions,
  env: Env,
  signal: AbortSignal = new AbortController().signal,
): Promise<void> {
  const client = new Client(await resolveContext(options, env));
  const show = (event: JsonObject): void => print(options.json === true ? JSON.stringify(event) : formatEvent(event));
  try {
    const base = `/events/${await client.workspaceId()}`;
    const filter = filterOf(flags);
    // The newest number comes first: what happens meanwhile is in the history or behind that number.
    const newest = flags.follow === true ? await history(client, base, { limit: '1' }) : [];
    const events = await history(client, base, { ...filter, limit: String(flags.limit) });
    for (const event of events) show(event);
    if (flags.follow !== true && events.length === 0)
      note(
        `no event matches${flags.type === undefined ? '' : ` ${flags.type}`}: docs/events.md names the kinds; events are kept for some days`,
      );
    if (flags.follow === true) await follow(client, base, filter, lastOf([...newest, ...events]), show, signal);
  } finally {
    await client.close();
  }
}

async function history(client: Client, base: string, query: Readonly<Record<string, string>>) {
  return listField(await client.rest(`${base}/history?${new URLSearchParams(query).toString()}`), 'events');
}

const lastOf = (events: readonly JsonObject[]): number =>
  events.reduce((last, event) => Math.max(last, numberField(event, 'seq_num')), 0);

async function follow(
  client: Client,
  base: string,
  filter: Readonly<Record<string, string>>,
  after: number,
  show: (event: JsonObject) => void,
  signal: AbortSignal,
): Promise<void> {
  let last = after;
  const outage = new Outage();
  for (let failures = 0; !signal.aborted;) {
    const query = new URLSearchParams({ ...filter, seq_num: String(last + 1) });
    try {
      const { body } = await client.open('GET', `/api/v1${base}/stream?${query.toString()}`);
      const stop = (): void => void body.destroy();
      signal.addEventListener('abort', stop, { once: true });
      for await (const line of linesOf(body)) {
        if (!line.startsWith('data: ')) continue;
        const event: unknown = JSON.parse(line.slice('data: '.length));
        if (isRecord(event) && typeof event['dropped'] === 'number')
          note(`${event['dropped']} events were left out: they came too fast`);
        // A frame that says what went wrong has no number.
        if (!isRecord(event) || typeof event['seq_num'] !== 'number') continue;
        failures = 0;
        outage.over();
        last = Math.max(last, event['seq_num']);
        show(event);
      }
      signal.removeEventListener('abort', stop);
    } catch (error) {
      // A refusal stays one; a scheduler that stops or is away comes back.
      if (error instanceof CliError && error.status !== undefined && error.status < 500) throw error;
      const text = signal.aborted ? undefined : outage.failed(performance.now());
      if (text !== undefined) note(text);
    }
    failures += 1;
    await sleep(backoffMs(failures, AGAIN), signal);
  }
}

function filterOf({ type, task, container, stub, app }: EventsFlags): Readonly<Record<string, string>> {
  return {
    ...(type === undefined ? {} : { event_types: type }),
    ...(task === undefined ? {} : { task_id: task }),
    ...(container === undefined ? {} : { container_id: container }),
    ...(stub === undefined ? {} : { stub_id: stub }),
    ...(app === undefined ? {} : { app_id: app }),
  };
}

/** Fields of the data that are printed, in this order. */
const WORDS = [
  'status',
  'id',
  'state',
  'action',
  'name',
  'pool_name',
  'failure_reason',
  'reason',
  'message',
  'line',
  'method',
  'path',
  'error_message',
] as const;

/** Fields of its attributes that are printed after them. */
const WHY = ['reason', 'failure'] as const;

/** @internal exported for its test: time, kind, subject, and what is most worth knowing of it */
export function formatEvent(event: JsonObject): string {
  const data = isRecord(event['data']) ? event['data'] : {};
  const subject = ['task_id', 'container_id', 'stub_id', 'machine_id'].map((name) => textField(event, name));
  const attrs = isRecord(data['attrs']) ? data['attrs'] : {};
  const said = [...WORDS.map((name) => textField(data, name)), ...WHY.map((name) => textField(attrs, name))];
  const words = said.filter((word) => word !== '' && !subject.includes(word));
  const about = subject.find((id) => id !== '') ?? '';
  return [
    textField(event, 'timestamp').slice(0, 23).replace('T', ' '),
    textField(event, 'type').padEnd(20),
    // Some kinds say their action as their status.
    ...[about, [...new Set(words)].join(' ')].filter((part) => part !== ''),
  ].join(' ');
}
