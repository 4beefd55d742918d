// A call to a port of one container, by its id: no task and no queue, but a connection into the container that its
// supervisor makes. The container counts as used while it lasts.
// Invariant: the number of connections into the containers of a workspace is bounded.
import type { Duplex } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Places } from '#shared/places.ts';
import type { ContainerStreams } from '../../../fleet/container-streams.ts';
import type { ContainerUses } from '../../../fleet/containers/uses.ts';
import type { ContainerWaits } from '../../../fleet/containers/waits.ts';
import type { ContainerRow } from '../../../stores/store/queries/containers.ts';
import { BAD_GATEWAY, Refusal, sendFailure, sendRefusal } from '../invoke/refusal.ts';
import type { FailureParts } from '../invoke/refusal.ts';
import { closeUnread } from '../polite-close.ts';
import {
  COME_AGAIN_SECONDS,
  NO_SUCH_UPGRADE,
  STOPPING,
  asksForOtherUpgrade,
  headersOf,
  underWay,
  unreadable,
} from './common.ts';
import type { HeaderList } from './head.ts';
import type { HttpExchange } from './http-exchange.ts';
import type { StreamMetrics } from './metrics.ts';
import type { OpenCall, OpenCalls } from './open-calls.ts';
import { portExchange } from './port-exchange.ts';
import type { PortFrames } from './port-frames.ts';
import { upgradeOf } from './upgrades.ts';

/** Most connections into containers of one workspace at this replica, beside the room of streamed calls. */
export const MOST_CONNECTIONS = 256;
/** Time for a container to run. */
const RUNS_WITHIN_MS = 60_000;
/** Time for a port: a program may have been started just now. */
const PORT_WAIT_MS = 5_000;

export interface SandboxCallParts extends FailureParts {
  readonly containerStreams: Pick<ContainerStreams, 'open'>;
  readonly containerUses: Pick<ContainerUses, 'hold'>;
  readonly containerWaits: Pick<ContainerWaits, 'find' | 'waitUntilRunning'>;
  readonly connections: Places<WorkspaceId>;
  readonly openCalls: OpenCalls;
  readonly streamMetrics: StreamMetrics;
}

export interface SandboxTo {
  readonly containerId: string;
  readonly stubId: string;
  readonly workspaceId: WorkspaceId;
  readonly port: number;
  /** Why the port is not for callers; undefined: it is. */
  readonly refuses: (row: ContainerRow) => Refusal | undefined;
  readonly rootPath: string;
  readonly tokenInHeader: boolean;
}

export function sandboxCall(
  to: SandboxTo,
  request: FastifyRequest,
  reply: FastifyReply,
  parts: SandboxCallParts,
): void {
  const problem = unreadable(request);
  if (problem !== undefined) return sendRefusal(reply, problem);
  if (asksForOtherUpgrade(request)) return sendRefusal(reply, NO_SUCH_UPGRADE);
  if (reply.raw.destroyed) return;
  const giveBack = parts.connections.take(to.workspaceId);
  if (giveBack === undefined) {
    const text = `this workspace has ${parts.connections.most} connections into its containers: wait until some have ended`;
    return sendRefusal(reply, new Refusal(429, 'error', text));
  }
  new SandboxCall(to, request, reply, parts).begin(giveBack);
}

class SandboxCall implements OpenCall {
  readonly protocol: 'http' | 'websocket';
  readonly #to: SandboxTo;
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  readonly #parts: SandboxCallParts;
  readonly #left = new AbortController();
  #exchange: HttpExchange | undefined;
  #program: PortFrames | undefined;
  #hasBegun = false;
  #isOver = false;
  #onGone: () => void = () => undefined;

  constructor(to: SandboxTo, request: FastifyRequest, reply: FastifyReply, parts: SandboxCallParts) {
    this.#to = to;
    this.#request = request;
    this.#reply = reply;
    this.#parts = parts;
    this.protocol = upgradeOf(request.raw) === undefined ? 'http' : 'websocket';
  }

  begin(onOver: () => void): void {
    this.#onGone = underWay(this, this.#parts, onOver);
    this.#reply.raw.once('close', () => {
      this.#onGone();
      this.#left.abort();
      if (!this.#reply.raw.writableEnded) this.#exchange?.cut();
    });
    this.#connect().catch((error: unknown) => {
      if (this.#isOver || this.#hasBegun || this.#left.signal.aborted) return;
      this.#isOver = true;
      sendFailure(error, this.#reply, this.#parts);
    });
  }

  async #connect(): Promise<void> {
    const { containerWaits, containerStreams, containerUses } = this.#parts;
    const { containerId, stubId, port, workspaceId } = this.#to;
    const { signal } = this.#left;
    const row = await containerWaits.find(containerId, workspaceId);
    if (row === undefined || row.stubId !== stubId)
      return this.#refuse(new Refusal(404, 'error', `there is no container ${containerId.slice(0, 80)} of this stub`));
    const refusal = this.#to.refuses(row);
    if (refusal !== undefined) return this.#refuse(refusal);
    const waited = await containerWaits.waitUntilRunning(containerId, RUNS_WITHIN_MS, signal);
    if (!waited.ok) return this.#refuse(new Refusal(waited.why === 'late' ? 504 : 502, 'error', waited.reason));
    const { machineId } = waited.row;
    if (machineId === null) return this.#refuse(BAD_GATEWAY);
    const release = containerUses.hold(containerId);
    try {
      const bytes = await containerStreams.open(machineId, { containerId }, signal);
      bytes.once('close', release);
      this.#pass(bytes, port);
    } catch (error) {
      release();
      throw error;
    }
  }

  #pass(bytes: Duplex, port: number): void {
    const { raw: request } = this.#request;
    const { raw: response } = this.#reply;
    if (this.#isOver || response.destroyed) return void bytes.destroy();
    const { rootPath, tokenInHeader } = this.#to;
    const { streamMetrics } = this.#parts;
    const upgrade = upgradeOf(request);
    this.#exchange = portExchange(
      {
        request,
        response,
        bytes,
        begin: () => this.#begun(),
        onBytes: (direction, count) => streamMetrics.countBytes(direction, count),
        onOver: (isWhole) => this.#over(isWhole),
        port,
        waitMs: PORT_WAIT_MS,
        fastify: this.#request,
        rootPath,
        tokenInHeader,
      },
      (program) => (this.#program = program),
      upgrade && {
        upgrade,
        begun: () => this.#begun(),
        onOver: (isWhole) => {
          this.#over(isWhole);
          this.#onGone();
          bytes.destroy();
        },
      },
    );
  }

  #begun(): HeaderList {
    this.#hasBegun = true;
    const added = headersOf(this.#reply);
    this.#reply.hijack();
    return added;
  }

  #over(isWhole: boolean): void {
    if (this.#isOver) return;
    if (!this.#hasBegun) {
      const text = this.#program?.refusal;
      return this.#refuse(text === undefined ? BAD_GATEWAY : new Refusal(502, 'error', text));
    }
    this.#isOver = true;
    this.#parts.streamMetrics.ended.inc({ protocol: this.protocol, result: isWhole ? 'whole' : 'cut' });
  }

  #refuse(refusal: Refusal): void {
    if (this.#isOver || this.#hasBegun) return;
    this.#isOver = true;
    if (this.#reply.raw.destroyed) return;
    this.#parts.streamMetrics.ended.inc({ protocol: this.protocol, result: 'answered' });
    closeUnread(this.#request, this.#reply);
    this.#request.raw.resume();
    sendRefusal(this.#reply, refusal);
  }

  refuse(): void {
    if (this.#isOver || this.#hasBegun) return;
    void this.#reply.header('connection', 'close').header('retry-after', String(COME_AGAIN_SECONDS));
    this.#refuse(STOPPING);
    this.#exchange?.cut();
    this.#left.abort();
  }

  cut(): void {
    if (this.#hasBegun) this.#exchange?.cut();
  }
}
