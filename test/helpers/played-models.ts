// The surface below /v1 over real HTTP, with another server behind a model whose answers a test plays. Nothing is
// stored: charges are noted.
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pino } from 'pino';
import { Registry } from '#shared/metrics.ts';
import { newId } from '#shared/domain/ids.ts';
import type { TokenId, WorkspaceId } from '#shared/domain/ids.ts';
import { Backends } from '../../scheduler/api/http/inference/backends.ts';
import type { ExchangeTimes } from '../../scheduler/api/http/inference/call.ts';
import { EXCHANGE_TIMES } from '../../scheduler/api/http/inference/call.ts';
import { InferenceMetrics } from '../../scheduler/api/http/inference/metrics.ts';
import type { RoutedCall } from '../../scheduler/api/http/inference/route-event.ts';
import { registerInference } from '../../scheduler/api/http/inference/routes.ts';
import { ANSWER_RULES } from '../../scheduler/api/http/inference/whole-answer.ts';
import { BodyBudget } from '../../scheduler/api/http/body-budget.ts';
import { createHttpServer } from '../../scheduler/api/http/server.ts';
import type { HttpServer, ServerState } from '../../scheduler/api/http/server.ts';
import type { BackendAnswer } from '../../scheduler/api/http/streams/backend-call.ts';
import { OpenCalls } from '../../scheduler/api/http/streams/open-calls.ts';
import type { ChargeStatus, TokenUsage } from '../../scheduler/domain/inference.ts';
import type { ModelRow } from '../../scheduler/stores/store/queries/models.ts';
import type { Caller } from '../../scheduler/workspaces/identity/caller.ts';
import { jsonText } from './exact-json.ts';

type Json = Readonly<Record<string, unknown>>;

/** A request that reached the played server. */
export interface PlayedRequest {
  readonly body: Json;
  readonly signal: AbortSignal;
  /** Answers with one JSON object. */
  readonly json: (value: object, status?: number) => void;
  /** Begins a stream of events. @returns takes the data of an event; null ends the stream */
  readonly events: () => (data: string | null) => void;
}

export interface PlayedModels {
  readonly post: (path: string, body: unknown, signal?: AbortSignal) => Promise<Response>;
  readonly requests: PlayedRequest[];
  readonly settled: { readonly usage: TokenUsage; readonly status: ChargeStatus }[];
  readonly routed: RoutedCall[];
  /** Bytes of bodies that the surface counts now. */
  readonly heldBytes: () => number;
  /** Bytes of answers that the surface counts now. */
  readonly answerBytes: () => number;
  readonly stop: () => Promise<void>;
}

const CALLER: Caller = {
  workspaceId: newId() as WorkspaceId,
  workspaceDbId: 1,
  tokenId: newId() as TokenId,
  type: 'workspace',
  isAdmin: false,
};

/** A model of another workspace, with a price. */
const aModel = (fields: Partial<ModelRow>): ModelRow => ({
  id: newId(),
  workspaceId: newId() as WorkspaceId,
  workspaceName: 'owner',
  name: 'played',
  isPublic: true,
  active: true,
  type: 'chat',
  prices: { promptMicrosPerMillion: 1_000_000, completionMicrosPerMillion: 1_000_000, requestMicros: 0 },
  details: {
    displayName: '',
    description: '',
    ownedBy: '',
    contextLength: null,
    maxOutputTokens: null,
    embedding: null,
    capabilities: {},
    supportedParameters: [],
    inputSchema: null,
    outputSchema: null,
    defaultParameters: jsonText({}),
    shutdownDate: null,
  },
  backends: [{ kind: 'external', base_url: 'http://played' }],
  createdAtMs: 0,
  updatedAtMs: 0,
  ...fields,
});

/** @param play - answers each request, now or later */
export async function playModels(
  play: (request: PlayedRequest, nth: number) => void,
  { times = {}, embeddingBatch }: { readonly times?: Partial<ExchangeTimes>; readonly embeddingBatch?: number } = {},
): Promise<PlayedModels> {
  const requests: PlayedRequest[] = [];
  const settled: { usage: TokenUsage; status: ChargeStatus }[] = [];
  const routed: RoutedCall[] = [];
  const plain = aModel({});
  const model =
    embeddingBatch === undefined
      ? plain
      : aModel({
          type: 'embedding',
          details: { ...plain.details, embedding: { dimensions: 1, max_batch: embeddingBatch } },
        });
  const call = (
    _backend: unknown,
    _owner: unknown,
    _path: string,
    sent: Buffer,
    _accept: string,
    signal: AbortSignal,
  ) =>
    new Promise<BackendAnswer>((resolve, reject) => {
      const answer = (status: number, type: string): Readable => {
        const body = new Readable({ read: () => undefined, signal });
        body.on('error', () => undefined);
        resolve({ status, headers: { 'content-type': type }, body });
        return body;
      };
      signal.addEventListener('abort', () => reject(new Error('given up')), { once: true });
      const request: PlayedRequest = {
        body: JSON.parse(sent.toString()) as Json,
        signal,
        json: (value, status = 200) => {
          const body = answer(status, 'application/json');
          body.push(JSON.stringify(value));
          body.push(null);
        },
        events: () => {
          const body = answer(200, 'text/event-stream');
          return (data) => void body.push(data === null ? null : `data: ${data}\n\n`);
        },
      };
      requests.push(request);
      play(request, requests.length);
    });
  const log = pino({ level: 'silent' });
  const answers = new BodyBudget(ANSWER_RULES);
  let state: ServerState | undefined;
  const never = (): never => {
    throw new Error('no deployment is called');
  };
  const server: HttpServer = createHttpServer({
    log,
    register: (app, is) => {
      state = is;
      void app.register((scope, _options, done) => {
        registerInference(scope, {
          authenticator: { authenticate: () => Promise.resolve(CALLER) },
          catalog: {
            find: () => Promise.resolve(model),
            public: () => Promise.resolve(new Map()),
            visibleTo: () => Promise.resolve(new Map()),
          },
          hasContainers: () => false,
          release: (request) => is.bodies.release(request),
          keptAnswers: {
            claim: never,
            keep: never,
            spend: never,
            release: never,
          },
          backends: new Backends({
            targets: { byName: never },
            external: { call },
            submissions: { submit: never },
            streams: { expect: never },
            cancel: never,
            random: () => 0,
            log,
          }),
          charging: {
            reserve: () => Promise.resolve({ kind: 'admitted' }),
            progress: () => undefined,
            settle: (_id, usage, status) => {
              settled.push({ usage, status });
              return Promise.resolve();
            },
            release: () => Promise.resolve(),
          },
          holds: { handOver: never, giveBack: never },
          deferred: { accept: never, ofKey: never },
          taskUrlOf: never,
          wallMs: () => Date.now(),
          rates: { take: () => Promise.resolve({ kind: 'taken', headers: {}, used: () => undefined }) },
          openCalls: new OpenCalls(),
          answers,
          metrics: new InferenceMetrics(new Registry()),
          routed: (told) => routed.push(told),
          times: { ...EXCHANGE_TIMES, ...times },
          nowMs: () => performance.now(),
          log,
        });
        done();
      });
    },
  });
  await server.start('127.0.0.1:0');
  const { port } = server.app.server.address() as AddressInfo;
  return {
    post: (path, body, signal) =>
      fetch(`http://127.0.0.1:${port}/v1${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: 'Bearer token' },
        body: JSON.stringify(body),
        ...(signal === undefined ? {} : { signal }),
      }),
    requests,
    settled,
    routed,
    heldBytes: () => state?.bodies.heldBytes('known') ?? 0,
    answerBytes: () => answers.usedBytes,
    stop: () => server.stop(0),
  };
}
