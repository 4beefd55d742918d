// Topics of the live stream. A topic is a GET route whose answer is read again here, once for all who follow it, and of
// which changes alone are sent. So a topic has the rights, the filters and the answer of its route.
import { AppError } from '#shared/errors.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { confinementProblem } from '../../../workspaces/identity/confinement.ts';
import { compileQuery } from './query.ts';
import { grantsOf, mayCall } from './route.ts';
import type { RestRoute } from './route.ts';

export interface TopicRule {
  /** The route that answers, such as `GET /task/{ws}/{taskId}`. */
  readonly route: string;
  /** Parameter of the route's path that the text behind `:` is; absent: that text is the route's query. */
  readonly param?: string;
  /** Query of the route, beside one that the topic names. */
  readonly query?: string;
  /** Milliseconds between two readings while events come; 500 when absent. */
  readonly paceMs?: number;
  /** Milliseconds between two readings while nothing happens; 5 s when absent. */
  readonly idleMs?: number;
  /** The answer without what changes with the clock alone; absent: all of it counts. */
  readonly steady?: (answer: Readonly<Record<string, unknown>>) => unknown;
  /** Whether the answer hardly changes any more: it is read again once a minute at most. */
  readonly isEnded?: (answer: Readonly<Record<string, unknown>>) => boolean;
}

/** Topics by the words before `:`. A new one is a line here. */
export const LIVE_TOPICS: Readonly<Record<string, TopicRule>> = {
  overview: { route: 'GET /deployment-health/{ws}', query: 'limit=200', paceMs: 2_000 },
  deployment: { route: 'GET /explain/{ws}/{id}', param: 'id', paceMs: 1_000, steady: withoutClock },
  explain: { route: 'GET /explain/{ws}/{id}', param: 'id', paceMs: 1_000, steady: withoutClock },
  task: {
    route: 'GET /task/{ws}/{taskId}',
    param: 'taskId',
    query: 'short=true',
    isEnded: ({ ended_at }) => ended_at !== null,
  },
  tasks: { route: 'GET /task-summary/{ws}', paceMs: 2_000 },
  stats: { route: 'GET /task-stats/{ws}', paceMs: 5_000, steady: withoutRange },
  waiting: { route: 'GET /waiting', paceMs: 2_000, idleMs: 3_000, steady: withoutLook },
  gpus: { route: 'GET /gpu-map', paceMs: 2_000 },
  logs: { route: 'GET /logs/{ws}/stream' },
};

/** The leader looks again and again. */
function withoutLook(answer: Readonly<Record<string, unknown>>): unknown {
  return { ...answer, looked_at: null };
}

/** An explanation says its last decision as of now. */
function withoutClock(answer: Readonly<Record<string, unknown>>): unknown {
  const { scaling } = answer as { readonly scaling?: { readonly decision?: object } | null };
  if (scaling === undefined || scaling === null) return answer;
  return { ...answer, scaling: { ...scaling, decision: { ...scaling.decision, at: null, until: null } } };
}

/** Statistics end now. */
function withoutRange(answer: Readonly<Record<string, unknown>>): unknown {
  return { ...answer, start: null, end: null };
}

/** A topic as a stream named it. */
export interface Topic {
  readonly text: string;
  readonly rule: TopicRule;
  readonly route: RestRoute;
  readonly params: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, string>>;
}

export const MOST_TOPICS = 60;
/** Topics of log lines that one stream follows. */
const MOST_LINES_TOPICS = 16;
const LONGEST_TOPIC = 500;

const invalid = (text: string): AppError => new AppError('invalid_query', `query parameter topics ${text}`);

/** Topics of a request. One that cannot be read fails alone, and the others are followed. */
export interface ReadTopics {
  readonly topics: readonly Topic[];
  readonly refused: readonly { readonly text: string; readonly error: AppError }[];
}

/**
 * Reads the topics of a request.
 * @throws AppError `invalid_query`: no topic is named, or more than a stream takes
 */
export function readTopics(texts: readonly string[] | undefined, routes: readonly RestRoute[]): ReadTopics {
  const all = [...new Set(texts ?? [])];
  if (all.length === 0) throw invalid(`must name topics: ${Object.keys(LIVE_TOPICS).join(', ')}`);
  if (all.length > MOST_TOPICS) throw invalid(`has more than ${MOST_TOPICS} topics`);
  const topics: Topic[] = [];
  const refused: { readonly text: string; readonly error: AppError }[] = [];
  let left = MOST_LINES_TOPICS;
  for (const text of all) {
    try {
      const topic = readTopic(text, routes);
      const { query } = topic.route;
      if (query !== undefined) compileQuery(query)(topic.query);
      if (isOfLines(topic) && left === 0) throw invalid(`has more than ${MOST_LINES_TOPICS} topics of logs`);
      if (isOfLines(topic)) left -= 1;
      topics.push(topic);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      refused.push({ text, error });
    }
  }
  return { topics, refused };
}

/** Whether the topic is log lines, which are not shared. */
export const isOfLines = ({ route }: Topic): boolean => route.stream !== undefined;

function readTopic(text: string, routes: readonly RestRoute[]): Topic {
  if (text.length > LONGEST_TOPIC) throw invalid(`has a topic longer than ${LONGEST_TOPIC} characters`);
  const at = text.indexOf(':');
  const [word, rest] = at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
  const rule = Object.hasOwn(LIVE_TOPICS, word) ? LIVE_TOPICS[word] : undefined;
  if (rule === undefined) throw invalid(`has no topic ${word}: there are ${Object.keys(LIVE_TOPICS).join(', ')}`);
  const route = routes.find(({ method, path }) => `${method} ${path}` === rule.route);
  if (route === undefined) throw new Error(`topic ${word}: there is no route ${rule.route}`);
  if (rule.param === undefined) return { text, rule, route, params: {}, query: queryOf(rule.query, rest) };
  const value = decoded(rest);
  if (value === '') throw invalid(`needs what it is about, as in ${word}:ID`);
  return { text, rule, route, params: { [rule.param]: value }, query: queryOf(rule.query, '') };
}

/** A name that is given twice, or is NUL, is refused by the route's own reader. */
function queryOf(own = '', named: string): Readonly<Record<string, string>> {
  return Object.fromEntries([...new URLSearchParams(own), ...new URLSearchParams(named)]);
}

function decoded(text: string): string {
  try {
    const value = decodeURIComponent(text);
    if (!value.includes('\0')) return value;
  } catch {
    // Refused as a text that cannot be read.
  }
  throw invalid('has a topic that cannot be decoded');
}

/** Why the caller may not follow the topic; undefined: it may. */
export function topicProblem(caller: Caller, { route }: Pick<Topic, 'route'>): string | undefined {
  if (!mayCall(caller, route)) return 'Unauthorized';
  const problem = confinementProblem(caller, grantsOf(route));
  return problem === undefined ? undefined : `Unauthorized: ${problem}`;
}

/** Callers with the same text see the same answers. */
export function viewOf({ type, isAdmin, confined, tokenId, workspaceId }: Caller): string {
  return JSON.stringify([type, isAdmin, workspaceId, confined === undefined ? null : [confined, tokenId]]);
}
