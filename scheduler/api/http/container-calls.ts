/**
 * Calls of containers that come over the agent link. An agent names the container by
 * whose socket a call came, and its machine's credential proves its right to do so. The
 * call goes through the HTTP surfaces as a request with that container's credential.
 * Invariant: a machine speaks for its own containers only, each by the placement it has there. A container never uses
 * another credential than its own. Only the part of a body that is under way is in memory.
 */
import type { EventEmitter } from 'node:events';
import type { ClientRequest, IncomingMessage, Server } from 'node:http';
import { status as GrpcStatus } from '@grpc/grpc-js';
import { withDeadline } from '#shared/backoff.ts';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import { headersToPass, isContainerCall, refusalBody } from '#shared/domain/container-calls.ts';
import type { HttpHeader } from '#shared/domain/container-calls.ts';
import type { Log } from '#shared/log.ts';
import { PART_BYTES } from '#shared/protocol/link.ts';
import type { GatewayRequest__Output, GatewayRequestHead__Output } from '#shared/protocol/generated/messages.ts';
import type { ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import type { Tokens } from '../../workspaces/identity/tokens.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import type { ContainerCall } from '../../fleet/links.ts';
import type { FleetMetrics } from '../../fleet/metrics.ts';
import { tokenOf as bearerOf } from './auth.ts';
import { requestWithin } from './within.ts';

export interface ContainerCallsParts {
  readonly containers: Pick<ContainerRegistry, 'get' | 'readAgain'>;
  readonly tokenOf: (row: ContainerRow) => Promise<string>;
  readonly tokens: Pick<Tokens, 'containerNamedBy'>;
  /** The scheduler's own HTTP server. */
  readonly server: () => Server;
  /** Whether the server takes calls: not before it listens, nor after its drain. */
  readonly isOpen: () => boolean;
  readonly metrics: Pick<FleetMetrics, 'containerCalls'>;
  readonly log: Log;
  /** Longest stall of a call; absent: 90 s, which is later than the agent's own. */
  readonly stalledMs?: number;
}

/**
 * Host in the URLs of answers where no external URL is set. The name
 * resolves nowhere, so that such URLs are used through the socket only.
 */
export const HOST = 'gateway.longshore.internal';
/**
 * Calls under way at once of a machine, and of a container; a container is also bound by the room left on its machine.
 */
const MOST_AT_ONCE = 512;
const MOST_OF_CONTAINER = 64;
/** Longest time for which an agent may send nothing of a begun body, or read nothing of an answer. */
const STALLED_MS = 90_000;
const HEAD_WITHIN_MS = 10_000;

type CallResult = 'answered' | 'refused' | 'busy' | 'cut_off';

export class ContainerCalls {
  readonly #parts: ContainerCallsParts;
  readonly #underWay = new Map<MachineId, number>();
  readonly #ofContainer = new Map<ContainerId, number>();

  constructor(parts: ContainerCallsParts) {
    this.#parts = parts;
  }

  /** Serves a call. @param call - the paused stream of that machine's agent */
  async serve(machineId: MachineId, call: ContainerCall): Promise<void> {
    const { containerCalls } = this.#parts.metrics;
    call.on('error', () => undefined);
    // Agents connect before the surfaces exist, and stay connected a little longer.
    if (!this.#parts.isOpen()) {
      containerCalls.inc({ result: 'busy' });
      return refuse(
        call,
        503,
        'scheduler_away',
        'the scheduler takes no calls at this moment, and did nothing: try again soon',
      );
    }
    const underWay = this.#underWay.get(machineId) ?? 0;
    if (underWay >= MOST_AT_ONCE) {
      containerCalls.inc({ result: 'busy' });
      return refuse(call, 503, 'too_many_calls', `the containers of this machine have ${MOST_AT_ONCE} calls under way`);
    }
    add(this.#underWay, machineId, 1);
    try {
      containerCalls.inc({ result: await this.#serve(machineId, call) });
    } catch (error) {
      containerCalls.inc({ result: 'failed' });
      this.#parts.log.warn({ err: error, machineId }, 'a call of a container failed');
      cutOff(call);
    } finally {
      add(this.#underWay, machineId, -1);
    }
  }

  async #serve(machineId: MachineId, call: ContainerCall): Promise<CallResult> {
    // The call's answer continues after its request has been read
    // to the end, so the iterator must not destroy the stream.
    const parts = call.iterator({ destroyOnReturn: false }) as AsyncIterator<GatewayRequest__Output>;
    const head = await headOf(parts);
    if (head === undefined) {
      cutOff(call);
      return 'cut_off';
    }
    const row = await this.#placedThere(machineId, head);
    const [path = ''] = head.path.split('?', 1);
    if (row === undefined || !isContainerCall(head.method, path)) {
      refuse(call, 401, 'unauthorized', 'Unauthorized');
      return 'refused';
    }
    const ofContainer = this.#ofContainer.get(row.id) ?? 0;
    const room = MOST_AT_ONCE - (this.#underWay.get(machineId) ?? 0);
    if (ofContainer >= Math.min(MOST_OF_CONTAINER, Math.max(1, room))) {
      refuse(call, 429, 'too_many_calls', `this container has ${ofContainer} calls under way: wait for one of them`);
      return 'busy';
    }
    add(this.#ofContainer, row.id, 1);
    try {
      return await this.#pass(call, parts, head, row);
    } finally {
      add(this.#ofContainer, row.id, -1);
    }
  }

  async #pass(
    call: ContainerCall,
    parts: AsyncIterator<GatewayRequest__Output>,
    head: GatewayRequestHead__Output,
    row: ContainerRow,
  ): Promise<CallResult> {
    const presented = bearerOf(valueOf(head.headers, 'authorization'));
    if (presented !== null && !(await this.#isOwn(presented, row))) {
      refuse(
        call,
        401,
        'unauthorized',
        'the token is not that of this container: leave it out, or send LONGSHORE_TOKEN',
      );
      return 'refused';
    }
    const request = requestWithin(this.#parts.server(), {
      method: head.method,
      path: head.path,
      headers: {
        ...grouped(head.headers),
        host: HOST,
        authorization: `Bearer ${presented ?? (await this.#parts.tokenOf(row))}`,
      },
    });
    call.on('cancelled', () => request.destroy());
    if (call.cancelled) request.destroy();
    return passOn(call, parts, request, this.#parts.stalledMs ?? STALLED_MS);
  }

  /**
   * Whether the presented token names this container. The token's text decides,
   * because a newer key would sign it differently. The surface that serves the call
   * checks its validity. Other tokens are not even looked up, which could use them up.
   */
  async #isOwn(presented: string, { id, epoch }: ContainerRow): Promise<boolean> {
    const named = await this.#parts.tokens.containerNamedBy(presented);
    return named?.containerId === id && named.epoch === epoch;
  }

  async #placedThere(machineId: MachineId, head: GatewayRequestHead__Output): Promise<ContainerRow | undefined> {
    const { containers } = this.#parts;
    const id = head.containerId as ContainerId;
    const isThere = (row: ContainerRow | undefined): row is ContainerRow =>
      row?.machineId === machineId && row.epoch === head.epoch;
    if (!isThere(containers.get(id)?.row)) await containers.readAgain([id]);
    const row = containers.get(id)?.row;
    return isThere(row) ? row : undefined;
  }
}

async function passOn(
  call: ContainerCall,
  parts: AsyncIterator<GatewayRequest__Output>,
  request: ClientRequest,
  stalledMs: number,
): Promise<'answered' | 'cut_off'> {
  const answered = new Promise<IncomingMessage | undefined>((resolve) => {
    request.once('response', resolve);
    request.on('error', () => resolve(undefined));
    request.once('close', () => resolve(undefined));
  });
  // The body is sent beside the reading of the answer: a server may refuse a body before it has come.
  const sending = sendBody(parts, request, stalledMs);
  const answer = await answered;
  if (answer === undefined) {
    cutOff(call);
    return 'cut_off';
  }
  const headers = headersToPass(answer.rawHeaders);
  call.write({ head: { status: answer.statusCode ?? 502, headers } });
  try {
    for await (const chunk of answer) {
      const bytes = chunk as Buffer;
      for (let at = 0; at < bytes.length; at += PART_BYTES) {
        if (!call.write({ data: bytes.subarray(at, at + PART_BYTES) }) && !call.cancelled)
          await withDeadline(anyOf(call, 'drain', 'cancelled', 'close'), stalledMs, stalled);
      }
    }
  } catch {
    cutOff(call);
    return 'cut_off';
  }
  call.end();
  request.destroy();
  await sending;
  return 'answered';
}

async function sendBody(
  parts: AsyncIterator<GatewayRequest__Output>,
  request: ClientRequest,
  stalledMs: number,
): Promise<void> {
  const next = (): Promise<IteratorResult<GatewayRequest__Output>> => withDeadline(parts.next(), stalledMs, stalled);
  try {
    for (let part = await next(); part.done !== true; part = await next()) {
      if (request.destroyed) return;
      const { data } = part.value;
      if (data.length > 0 && !request.write(data)) await anyOf(request, 'drain', 'close');
    }
    request.end();
  } catch {
    // The agent or the server went away: the other half of the call reports it.
    request.destroy();
  }
}

const stalled = (): Error => new Error('a call of a container stands still');

/** Counts a key up or down; a key at zero is removed. */
function add<Key>(counts: Map<Key, number>, key: Key, by: number): void {
  const count = (counts.get(key) ?? 0) + by;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}

function anyOf(emitter: EventEmitter, ...events: readonly string[]): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      for (const event of events) emitter.off(event, done);
      resolve();
    };
    for (const event of events) emitter.on(event, done);
  });
}

function refuse(call: ContainerCall, status: number, code: string, message: string): void {
  call.write({ head: { status, headers: [{ name: 'content-type', value: 'application/json' }] } });
  call.write({ data: Buffer.from(refusalBody(code, message)) });
  call.end();
}

const valueOf = (headers: readonly HttpHeader[], name: string): string | undefined =>
  headers.find((header) => header.name.toLowerCase() === name)?.value;

function grouped(headers: readonly HttpHeader[]): Record<string, string[]> {
  // Created without a prototype: a header may have the name of a property that every object has.
  const out = Object.create(null) as Record<string, string[]>;
  /** The spelling under which a name came first: values of one name stay together. */
  const spelt = new Map<string, string>();
  for (const { name, value } of headersToPass(headers.flatMap((header) => [header.name, header.value]))) {
    const known = name.toLowerCase();
    // The platform writes these itself.
    if (known === 'authorization' || known === 'host') continue;
    if (!spelt.has(known)) spelt.set(known, name);
    (out[spelt.get(known) ?? name] ??= []).push(value);
  }
  return out;
}

/** Reads the head of a call; undefined: no head came in time, or another message came first. */
async function headOf(parts: AsyncIterator<GatewayRequest__Output>): Promise<GatewayRequestHead__Output | undefined> {
  const inTime = withDeadline(parts.next(), HEAD_WITHIN_MS, () => new Error('no head came in time'));
  const next = await inTime.catch(() => undefined);
  return next === undefined || next.done === true ? undefined : (next.value.head ?? undefined);
}

/** Fails the call, so that the reader does not take the partial answer for the whole. */
function cutOff(call: ContainerCall): void {
  const details = 'the call was cut off';
  call.emit('error', { name: 'Error', code: GrpcStatus.UNAVAILABLE, details, message: details });
}
