// How the soak talks to the installation: every request bounded in time, never more than so many at once, and each kept as text so that a wrong answer can be written out whole.
import { Agent, request } from 'undici';
import type { Context } from '#cli/context.ts';

export interface SoakAnswer {
  readonly status: number;
  readonly text: string;
  /** Empty: none was accepted. */
  readonly taskId: string;
  /** The request, for a person: method, path, body. */
  readonly asked: string;
}

export interface AskOptions {
  readonly method?: 'GET' | 'POST' | 'DELETE';
  readonly body?: unknown;
  /** The caller hangs up after so long. */
  readonly hangUpMs?: number;
}

const CALL_MS = 60_000;

/** The caller hung up, as it meant to. */
export class HungUp extends Error {}

export class Caller {
  readonly workspaceId: string;
  readonly #url: string;
  readonly #token: string;
  readonly #agent = new Agent({ headersTimeout: 0, bodyTimeout: 0, keepAliveTimeout: 5_000 });
  readonly #most: number;
  readonly #line: (() => void)[] = [];
  #underWay = 0;

  /** @param most - requests under way at a time; the others wait their turn */
  constructor(context: Context, most: number) {
    this.workspaceId = context.workspaceId;
    this.#url = context.url;
    this.#token = context.token;
    this.#most = most;
  }

  /** Nothing is thrown for a status. @throws HungUp, or Error naming the request that was not answered */
  async ask(path: string, options: AskOptions = {}): Promise<SoakAnswer> {
    const { body, hangUpMs } = options;
    const method = options.method ?? (body === undefined ? 'GET' : 'POST');
    const asked = `${method} ${path}${body === undefined ? '' : ` ${JSON.stringify(body)}`}`;
    await this.#enter();
    const limit = AbortSignal.timeout(hangUpMs ?? CALL_MS);
    try {
      const answer = await request(path.startsWith('/') ? `${this.#url}${path}` : path, {
        method,
        dispatcher: this.#agent,
        signal: limit,
        headers: {
          authorization: `Bearer ${this.#token}`,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const text = await answer.body.text();
      return { status: answer.statusCode, text, taskId: String(answer.headers['x-task-id'] ?? ''), asked };
    } catch (error) {
      if (limit.aborted && hangUpMs !== undefined) throw new HungUp();
      throw new Error(`${asked} was not answered`, { cause: error });
    } finally {
      this.#leave();
    }
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
    await this.#agent.destroy();
  }

  async #enter(): Promise<void> {
    if (this.#underWay >= this.#most) await new Promise<void>((go) => this.#line.push(go));
    else this.#underWay += 1;
  }

  /** Whoever waits takes over the place. */
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

/** undefined: it is no JSON object. */
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
