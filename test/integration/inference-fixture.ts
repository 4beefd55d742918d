// A scheduler with models behind which a scripted server answers, for tests of the /v1 surface.
/* oxlint-disable no-empty-pattern */
import { expect } from 'vitest';
import { ReplicaSet } from '../helpers/replicas.ts';
import { ScriptedModelServer } from '../helpers/scripted-model-server.ts';
import { test as base } from '../helpers/services.ts';

export type Json = Readonly<Record<string, unknown>>;

export interface World {
  readonly set: ReplicaSet;
  readonly server: ScriptedModelServer;
  readonly url: string;
  readonly post: (path: string, body: unknown, options?: Options) => Promise<Response>;
  readonly get: (path: string, token?: string | null) => Promise<Response>;
  readonly model: (fields: Json) => Promise<void>;
}
export interface Options {
  readonly token?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export const bearer = (token: string | null): Record<string, string> =>
  token === null ? {} : { authorization: `Bearer ${token}` };

export const test = base.extend(
  'world',
  { scope: 'file' },
  async ({ postgres, redis }, { onCleanup }): Promise<World> => {
    const server = await new ScriptedModelServer().start();
    const set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
    onCleanup(async () => {
      await set.stop();
      await server.stop();
    });
    const replica = await set.add();
    const world: World = {
      set,
      server,
      url: replica.url,
      post: (path, body, { token = set.token, headers = {}, signal } = {}) =>
        fetch(`${replica.url}/v1${path}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...bearer(token), ...headers },
          body: typeof body === 'string' ? body : JSON.stringify(body),
          ...(signal === undefined ? {} : { signal }),
        }),
      get: (path, token = set.token) => fetch(`${replica.url}/v1${path}`, { headers: bearer(token) }),
      model: async (fields) => {
        const backends = [{ kind: 'external', base_url: server.baseUrl, served_model_name: 'served-name' }];
        const answer = await set.call(replica, `/api/v1/model/${set.workspaceId}`, {
          body: { type: 'chat', backends, ...fields },
        });
        expect([answer.status, answer.text]).toEqual([201, expect.any(String)]);
      },
    };
    await world.model({ id: 'acme/chat', context_length: 4096, visibility: 'public' });
    await world.model({ id: 'plain', capabilities: { tools: false, response_format: ['text'], streaming: false } });
    await world.model({
      id: 'acme/embed',
      type: 'embedding',
      embedding: { dimensions: 3, max_batch: 2, supported_dimensions: [2] },
    });
    await world.model({
      id: 'shape',
      type: 'custom',
      input_schema: {
        type: 'object',
        required: ['prompt'],
        properties: { prompt: { type: 'string' }, size: { enum: [1, 2] } },
      },
    });
    await world.model({ id: 'off', active: false });
    await world.model({
      id: 'dear',
      prices: { prompt_micros_per_million: 1, completion_micros_per_million: 0, request_micros: 0 },
    });
    return world;
  },
);

export const HELLO = [{ role: 'user', content: 'hello' }];
/** A chat with the public model. */
export const CHAT = { model: 'acme/chat', messages: HELLO };
export const errorIn = async (response: Response): Promise<Json> => ((await response.json()) as { error: Json }).error;

export interface Frame extends Json {
  readonly choices: readonly Json[];
}
/** Data of the events of a stream. */
export const eventsIn = (text: string): string[] =>
  text
    .split('\n\n')
    .filter((event) => event.startsWith('data: '))
    .map((event) => event.slice(6));
export const framesIn = (text: string): Frame[] =>
  eventsIn(text)
    .filter((data) => data !== '[DONE]')
    .map((data) => JSON.parse(data) as Frame);
