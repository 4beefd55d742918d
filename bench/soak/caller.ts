// How the soak talks to the installation: every request is bounded in time, and so is the number under way. Each is
// kept as text, so that a wrong answer can be written out whole.
import { Pool } from 'undici';
import { withDeadline } from '#shared/backoff.ts';
import type { Context } from '#cli/context.ts';

export interface SoakAnswer {
  readonly status: number;
  readonly text: string;
  /** Id of the accepted task; empty: none was accepted. */
  readonly taskId: string;
  /** The request, for a person: method, path, body. */
  readonly asked: string;
}

export interface AskOptions {
  readonly method?: 'GET' | 'POST' | 'DELETE';
  readonly body?: unknown;
  /** Milliseconds after which the caller hangs up. */
  readonly hangUpMs?: number;
}

/** Time in which every request is answered, while no store is away. */
export const CALL_MS = 60_000;

/** Tells that the caller hung up on purpose. */
export class HungUp extends Error {}

export class Caller {
  readonly workspaceId: string;
  readonly #token: string;
  readonly #pool: Pool;
  readonly #most: number;
  readonly #patienceMs: number;
  readonly #line: (() => void)[] = [];
  #underWay = 0;

  /**
   * @param most - requests under way at a time; the others wait their turn
   * @param patienceMs - time after which a request counts as not answered
   */
  constructor(context: Context, most: number, patienceMs = CALL_MS) {
    this.workspaceId = context.workspaceId;
    this.#pool = new Pool(context.url, { connections: most, headersTimeout: 0, bodyTimeout: 0 });
    this.#token = context.token;
    this.#most = most;
    this.#patienceMs = patienceMs;
  }

  /** Nothing is thrown for a status. @throws HungUp, or Error naming the request that was not answered */
  async ask(path: string, options: AskOptions = {}): Promise<SoakAnswer> {
    const { body, hangUpMs } = options;
    const method = options.method ?? (body === undefined ? 'GET' : 'POST');
    const asked = `${method} ${path}${body === undefined ? '' : ` ${JSON.stringify(body)}`}`;
    await this.#enter();
    const hangUp = new AbortController();
    const timer = hangUpMs === undefined ? undefined : setTimeout(() => hangUp.abort(), hangUpMs);
    try {
      const patienceMs = this.#patienceMs;
      const late = (): Error => new Error(`no answer within ${patienceMs / 1000} s`);
      const sent = this.#send(method, path, body, hangUp.signal);
      const { status, text, taskId } = await withDeadline(sent, patienceMs, late);
      return { status, text, taskId, asked };
    } catch (error) {
      if (hangUp.signal.aborted) throw new HungUp();
      throw new Error(`${asked} was not answered`, { cause: error });
    } finally {
      clearTimeout(timer);
      hangUp.abort();
      this.#leave();
    }
  }

  /** @param path - or an absolute URL of the same installation */
  async #send(method: 'GET' | 'POST' | 'DELETE', path: string, body: unknown, signal: AbortSignal) {
    const url = path.startsWith('/') ? path : path.slice(new URL(path).origin.length);
    const answer = await this.#pool.request({
      method,
      path: url,
      signal,
      headers: {
        authorization: `Bearer ${this.#token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const taskId = answer.headers['x-task-id'];
    return {
      status: answer.statusCode,
      text: await answer.body.text(),
      taskId: typeof taskId === 'string' ? taskId : '',
    };
  }

  /** A gateway operation that must succeed. @throws Error with request and answer */
  async gateway(path: string, options: AskOptions = {}): Promise<Readonly<Record<string, unknown>>> {
    const answer = await this.ask(`/api/v1/gateway${path}`, options);
    const value = objectOf(answer.text);
    if (answer.status !== 200 || value?.['ok'] === false || value === undefined)
      throw new Error(`${answer.asked} was answered ${answer.status} ${answer.text}`);
    return value;
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
  }

  async #enter(): Promise<void> {
    if (this.#underWay >= this.#most) await new Promise<void>((go) => this.#line.push(go));
    else this.#underWay += 1;
  }

  /** Hands the place to the longest waiting request, or frees it. */
  #leave(): void {
    const next = this.#line.shift();
    if (next === undefined) this.#underWay -= 1;
    else next();
  }
}

/** A field that is a text, else an empty one. */
export function textOf(object: Readonly<Record<string, unknown>> | undefined, field: string): string {
  const value = object?.[field];
  return typeof value === 'string' ? value : '';
}

/** @returns undefined: the text is no JSON object */
export function objectOf(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}
