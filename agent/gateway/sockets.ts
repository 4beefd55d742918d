/**
 * `gateway.sock`: each container's access to the platform, with any network or none. Each container has its own
 * listener in its mounted directory, beside the socket of its runner: the listener identifies the caller. Created with
 * the container's other socket, at its start and again by an agent that adopts it; removed with the container. Must
 * stay true: a request outside the allow-list never leaves the machine. Calls of a container are bounded, and no
 * container can use up the room of another.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { isContainerCall } from '#shared/domain/container-calls.ts';
import { readTarget } from '#shared/domain/request-target.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import { sleep } from '#shared/backoff.ts';
import type { Rule } from '../slots/budget.ts';
import { CallBudget } from '../slots/budget.ts';
import { SocketListener } from '../slots/listener.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import { answerItself, relay } from './relay.ts';
import type { Caller, UpstreamCall } from './relay.ts';

// As an imported module, `node:http` would load Node's fetch and WebSocket too, through its other exports.
const { createServer } = process.getBuiltinModule('node:http');

/** Bounds on concurrent calls, per container and in total; a container may take at most the room that is left. */
const MOST_CALLS = 64;
const MOST_CALLS_OF_ALL = 512;
/** Bound on connections: a client keeps some beside those of its calls. */
const MOST_CONNECTIONS = 2 * MOST_CALLS;
const HEADERS_WITHIN_MS = 15_000;
/**
 * Interval of Node's search for slow connections, which costs a timer per container. A slow connection only takes a
 * place of its own container, so a long interval will do.
 */
const LOOK_EVERY_MS = 300_000;
/** Bound on a whole call: an upload may be large, and a synchronous task long. */
const WHOLE_CALL_MS = 3_600_000;
const IDLE_MS = 60_000;
/** The longest time in which a container may send nothing of a begun body, or read nothing of an answer. */
const STALLED_MS = 60_000;

export interface GatewaySocketsParts {
  /** Opens a call over the link; undefined without a session. */
  readonly open: (deadlineMs: number) => UpstreamCall | undefined;
  readonly metrics: Pick<AgentMetrics, 'gatewayCalls' | 'gatewayCallsActive' | 'gatewayCallDuration'>;
  readonly log: Log;
  /** Stall limit; absent: 60 s. */
  readonly stalledMs?: number;
  /** The call budget of each container; absent: the usual one. */
  readonly budget?: () => CallBudget;
}

interface GatewaySocket {
  readonly caller: Caller;
  readonly server: Server;
  readonly listener: SocketListener;
  readonly budget: CallBudget;
  calls: number;
}

export class GatewaySockets {
  readonly #parts: GatewaySocketsParts;
  readonly #sockets = new Map<string, GatewaySocket>();
  readonly #violated = new Listeners<[string, Rule, string]>();
  #calls = 0;

  constructor(parts: GatewaySocketsParts) {
    this.#parts = parts;
  }

  /** Told when a container continues after repeated refusals: its socket is closed, and it has to end. */
  onViolation(listener: (containerId: string, rule: Rule, text: string) => void): void {
    this.#violated.add(listener);
  }

  /** Listens for a container's calls; replaces an earlier listener. */
  async add(caller: Caller, path: string): Promise<void> {
    this.end(caller.containerId);
    const server = createServer({
      headersTimeout: HEADERS_WITHIN_MS,
      requestTimeout: WHOLE_CALL_MS,
      keepAliveTimeout: IDLE_MS,
      connectionsCheckingInterval: LOOK_EVERY_MS,
      noDelay: true,
    });
    const listener = new SocketListener(path, server, {
      most: MOST_CONNECTIONS,
      onRefused: () => this.#refused(socket),
    });
    const socket: GatewaySocket = {
      caller,
      server,
      listener,
      budget: this.#parts.budget?.() ?? new CallBudget(),
      calls: 0,
    };
    server.on('request', (request, response) => void this.#serve(socket, request, response));
    this.#sockets.set(caller.containerId, socket);
    await socket.listener.listen();
  }

  /** The container has ended: its open calls are cut off. */
  end(containerId: string): void {
    const socket = this.#sockets.get(containerId);
    if (socket === undefined) return;
    this.#sockets.delete(containerId);
    socket.listener.close();
    socket.server.closeAllConnections();
  }

  close(): void {
    for (const containerId of [...this.#sockets.keys()]) this.end(containerId);
  }

  /** Refusals cost the agent time too: a container that ignores them has to end. */
  #refused({ caller, budget }: GatewaySocket): void {
    if (budget.refused(performance.now()) || !this.#sockets.has(caller.containerId)) return;
    this.end(caller.containerId);
    const text = 'the container went on calling the platform while its calls were refused';
    this.#violated.tell(caller.containerId, 'calls', text);
  }

  async #serve(socket: GatewaySocket, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { metrics, log } = this.#parts;
    const target = readTarget(request.method, request.url ?? '');
    if (target.kind !== 'path') {
      metrics.gatewayCalls.inc({ result: 'refused' });
      this.#refused(socket);
      return answerItself(response, 400, 'bad_request', 'the target of the request is no path');
    }
    // The host of an absolute target says nothing here: this socket leads to one place.
    request.url = target.path;
    const [path = ''] = target.path.split('?', 1);
    if (!isContainerCall(request.method ?? '', path)) {
      metrics.gatewayCalls.inc({ result: 'refused' });
      this.#refused(socket);
      return answerItself(response, 403, 'not_allowed', 'Unauthorized Access');
    }
    // A container may hold at most as many calls as there is room left, so the others always find some.
    const share = Math.min(MOST_CALLS, MOST_CALLS_OF_ALL - this.#calls);
    if (socket.calls >= share) {
      metrics.gatewayCalls.inc({ result: 'busy' });
      this.#refused(socket);
      const full = share < MOST_CALLS ? `, and its machine ${this.#calls}` : '';
      const text = `this container has ${socket.calls} calls under way${full}: wait for one of them`;
      return answerItself(response, 429, 'too_many_calls', text);
    }
    socket.calls += 1;
    this.#calls += 1;
    metrics.gatewayCallsActive.set(this.#calls);
    const from = performance.now();
    let call: UpstreamCall | undefined;
    try {
      const waitMs = socket.budget.call(from);
      if (waitMs > 0) {
        await sleep(waitMs);
        // The container hung up meanwhile.
        if (response.destroyed) {
          metrics.gatewayCalls.inc({ result: 'cut_off' });
          return;
        }
      }
      call = this.#parts.open(WHOLE_CALL_MS);
      if (call === undefined) {
        metrics.gatewayCalls.inc({ result: 'away' });
        return answerItself(
          response,
          503,
          'scheduler_away',
          'the scheduler cannot be reached now, and nothing was sent: try again soon',
        );
      }
      const result = await relay(socket.caller, request, response, call, this.#parts.stalledMs ?? STALLED_MS);
      metrics.gatewayCalls.inc({ result });
    } catch (error) {
      metrics.gatewayCalls.inc({ result: 'failed' });
      log.warn({ err: error, containerId: socket.caller.containerId }, 'a call of a container failed');
      call?.cancel();
      response.destroy();
    } finally {
      socket.calls -= 1;
      this.#calls -= 1;
      metrics.gatewayCallsActive.set(this.#calls);
      metrics.gatewayCallDuration.observe((performance.now() - from) / 1000);
    }
  }
}
