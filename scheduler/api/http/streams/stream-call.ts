// A streamed call from its request to its end: the same admission, queue and slot as any synchronous task, then the
// bytes themselves (http-exchange.ts, websockets.ts) instead of an input and a result.
// Invariant: no byte of the body is read before a container has the task. Until the container's head has come, every
// failure is answered as for an endpoint; from then on the connection is cut.
import type { Duplex } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { TaskId } from '#shared/domain/ids.ts';
import type { Ending } from '../../../domain/endings.ts';
import type { Target } from '../../../domain/stub-config.ts';
import type { Submissions } from '../../../tasks/admission/submissions.ts';
import type { Finished } from '../../../tasks/dispatch/replies.ts';
import type { Streams } from '../../../tasks/streams/streams.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { putByOf } from '../../../workspaces/identity/confinement.ts';
import { answerRefused, bodyFor } from '../invoke/answer.ts';
import { TOKEN_QUERY } from '../invoke/credential.ts';
import { OWN_COOKIES } from '../invoke/own-cookies.ts';
import { outcomes } from '../invoke/outcomes.ts';
import { BAD_GATEWAY, NO_ROOM, Refusal, send, sendFailure, sendRefusal } from '../invoke/refusal.ts';
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
import { queryWithout, requestHeaders, splitTarget, waitsForContinue } from './head.ts';
import type { HeaderList } from './head.ts';
import { FrameStream } from '#shared/protocol/frame-stream.ts';
import { HttpExchange } from './http-exchange.ts';
import type { HttpExchangeParts } from './http-exchange.ts';
import type { StreamMetrics } from './metrics.ts';
import { calledBy } from '../../../tasks/admission/calls.ts';
import type { OpenCall, OpenCalls } from './open-calls.ts';
import { LAST_BYTES_MS, OWN_END_MS, PORT_WAIT_MS, noHead, tooLongAfter } from './limits.ts';
import { portExchange } from './port-exchange.ts';
import type { PortFrames } from './port-frames.ts';
import type { StreamRoom } from './room.ts';
import { upgradeOf } from './upgrades.ts';
import type { Upgrade } from './upgrades.ts';
import { handshakeProblem, subprotocolsOf } from './websockets.ts';
import type { WebSockets } from './websockets.ts';

export interface StreamCallParts extends FailureParts {
  readonly submissions: Pick<Submissions, 'submit'>;
  readonly streams: Pick<Streams, 'expect'>;
  /** Ends a task that runs, because its caller or its limit wants so. */
  readonly cancel: (taskId: TaskId, ending: Ending) => Promise<void>;
  readonly webSockets: WebSockets;
  readonly room: StreamRoom;
  readonly openCalls: OpenCalls;
  readonly streamMetrics: StreamMetrics;
}

/** Where a streamed call goes, and how it came. */
export interface StreamedTo {
  readonly target: Target;
  readonly caller: Caller | null;
  /** Part of the path that names the deployment; empty in the host form. */
  readonly rootPath: string;
  /** Port of a pod; absent: an application that a runner process serves. */
  readonly port?: number;
  /** The caller's token came in the `Authorization` header. */
  readonly tokenInHeader: boolean;
  /** JSON that takes the place of an application's 404; absent: that goes out. */
  readonly notFound?: string;
}

/** Time for an application to end after its WebSocket was closed. */
const AFTER_CLOSE_MS = 30_000;

const BAD_KEY = new Refusal(400, 'error', 'Sec-WebSocket-Key is missing or not a key');
const BAD_SUBPROTOCOLS = new Refusal(400, 'error', 'Sec-WebSocket-Protocol is not a list of different names');

export function streamCall(to: StreamedTo, request: FastifyRequest, reply: FastifyReply, parts: StreamCallParts): void {
  const refusal = unreadable(request);
  if (refusal !== undefined) return sendRefusal(reply, refusal);
  if (to.port !== undefined && asksForOtherUpgrade(request)) return sendRefusal(reply, NO_SUCH_UPGRADE);
  // A pod answers handshakes itself.
  const upgrade = to.port === undefined ? upgradeOf(request.raw) : undefined;
  const problem = upgrade && handshakeProblem(request.raw);
  if (problem === 'version') {
    void reply.headers({ 'sec-websocket-version': '13', upgrade: 'websocket', connection: 'upgrade, close' });
    return send(reply, 426, JSON.stringify({ error: 'Sec-WebSocket-Version must be 13' }));
  }
  if (problem === 'key') return sendRefusal(reply, BAD_KEY);
  if (problem === 'subprotocols') return sendRefusal(reply, BAD_SUBPROTOCOLS);
  const { workspaceId } = to.target;
  // The caller hung up while its token was looked up: no further event tells of it.
  if (reply.raw.destroyed) return;
  if (!parts.room.take(workspaceId)) return sendRefusal(reply, NO_ROOM);
  new StreamCall(to, request, reply, parts).begin(() => parts.room.giveBack(workspaceId));
}

class StreamCall implements OpenCall {
  readonly #to: StreamedTo;
  readonly #request: FastifyRequest;
  readonly #reply: FastifyReply;
  readonly #parts: StreamCallParts;
  readonly protocol: 'http' | 'websocket';
  #taskId: TaskId | undefined;
  #forget: () => void = () => undefined;
  #callerLeft: () => void = () => undefined;
  #exchange: HttpExchange | undefined;
  /** The program on a pod's port. */
  #program: PortFrames | undefined;
  #limit: NodeJS.Timeout | undefined;
  /** Bytes of the request's body have come since the limit began. */
  #bodyGrew = false;
  #last: NodeJS.Timeout | undefined;
  #finished: Finished | undefined;
  #hasBegun = false;
  #isOver = false;
  /** The stream ended without a head. */
  #isBrokenOff = false;
  /** The container broke off just now: the end of the task may follow. */
  #endIsNear = false;
  #hasLeft = false;
  /** The caller was answered in the container's place. */
  #isAnswered = false;
  #onGone: () => void = () => undefined;

  constructor(to: StreamedTo, request: FastifyRequest, reply: FastifyReply, parts: StreamCallParts) {
    this.#to = to;
    this.#request = request;
    this.#reply = reply;
    this.#parts = parts;
    this.protocol = upgradeOf(request.raw) === undefined ? 'http' : 'websocket';
  }

  begin(onOver: () => void): void {
    const { streams, submissions } = this.#parts;
    const { target, caller } = this.#to;
    const { raw } = this.#reply;
    this.#onGone = underWay(this, this.#parts, onOver);
    raw.once('close', () => {
      this.#onGone();
      if (!raw.writableEnded) this.#left();
    });
    const putBy = putByOf(caller);
    submissions
      .submit(target, {
        input: '',
        ...(putBy === undefined ? {} : { putBy }),
        ...calledBy(caller, target),
        onStreamed: (taskId) => {
          this.#taskId = taskId;
          this.#forget = streams.expect(taskId, (bytes) => this.#connect(bytes));
        },
      })
      .then((submission) => {
        if (submission.kind !== 'accepted') {
          this.#forget();
          if (this.#hasBegun) return this.#exchange?.cut();
          if (this.#isAnswered) return;
          this.#isOver = true;
          closeUnread(this.#request, this.#reply);
          return answerRefused(submission, this.#reply);
        }
        this.#callerLeft = submission.callerLeft;
        if (this.#hasLeft || this.#isAnswered) submission.callerLeft();
        return submission.finished.then((finished) => this.#end(finished));
      })
      .catch((error: unknown) => {
        this.#forget();
        if (this.#hasBegun) this.#exchange?.cut();
        else if (!this.#isAnswered) sendFailure(error, this.#reply, this.#parts);
      });
  }

  /** A runner process is there: from now on bytes pass. */
  #connect(bytes: Duplex): void {
    if (this.#isOver || this.#reply.raw.destroyed) return void bytes.destroy();
    const { target, port, rootPath, notFound } = this.#to;
    const { timeoutSeconds } = target.config;
    if (timeoutSeconds > 0) this.#limitHead(timeoutSeconds);
    const { raw: request } = this.#request;
    const { raw: response } = this.#reply;
    const upgrade = upgradeOf(request);
    const { webSockets, streamMetrics } = this.#parts;
    const onBytes = (direction: 'in' | 'out', count: number): void => {
      if (direction === 'in') this.#bodyGrew = true;
      streamMetrics.countBytes(direction, count);
    };
    const common = {
      request,
      response,
      bytes,
      rootPath,
      ...(notFound === undefined ? {} : { notFound }),
      begin: () => this.#begun(),
      onBytes,
      onOver: (isWhole: boolean, byContainer: boolean) => this.#over(isWhole, byContainer),
    };
    if (port !== undefined) return this.#connectPort(port, common, upgrade);
    let frames: FrameStream;
    this.#exchange = new HttpExchange({
      ...common,
      head: Buffer.from(JSON.stringify(this.#head()), 'utf8'),
      open: (events) => (frames = new FrameStream(bytes, events)),
      ...(upgrade === undefined
        ? {}
        : {
            accept: (acceptance) => {
              const added = this.#begun();
              webSockets.accept(
                request,
                response,
                upgrade,
                { workspaceId: target.workspaceId, acceptance, added, frames },
                {
                  onBytes,
                  onFull: (bound) => streamMetrics.full.inc({ bound }),
                  onOver: (code) => this.#webSocketClosed(code),
                },
              );
            },
          }),
    });
  }

  /** Speaks HTTP with the program on a pod's port. */
  #connectPort(
    port: number,
    common: Omit<HttpExchangeParts, 'head' | 'open' | 'accept'>,
    upgrade: Upgrade | undefined,
  ): void {
    const { tokenInHeader } = this.#to;
    this.#exchange = portExchange(
      { ...common, port, waitMs: PORT_WAIT_MS, fastify: this.#request, tokenInHeader },
      (program) => (this.#program = program),
      upgrade && {
        upgrade,
        begun: () => this.#begun(),
        onOver: (isWhole) => this.#webSocketClosed(isWhole ? 1000 : 1006),
      },
    );
  }

  /** The head of the request, as the runner process gets it. */
  #head(): object {
    const { rootPath, tokenInHeader } = this.#to;
    const request = this.#request;
    const { raw } = request;
    const isWebSocket = this.protocol === 'websocket';
    const isSealed = request.protocol === 'https';
    const { path, query } = splitTarget(request.originalUrl);
    const { remotePort, localAddress, localPort } = raw.socket;
    return {
      type: isWebSocket ? 'websocket' : 'http',
      method: raw.method ?? 'GET',
      path: path === rootPath ? `${path}/` : path,
      rootPath,
      query: queryWithout(query, TOKEN_QUERY),
      scheme: isWebSocket ? (isSealed ? 'wss' : 'ws') : isSealed ? 'https' : 'http',
      httpVersion: raw.httpVersion,
      headers: requestHeaders(
        raw.rawHeaders,
        {
          for: [...(request.ips ?? [request.ip])].toReversed().join(', '),
          host: request.host,
          proto: request.protocol,
          prefix: rootPath,
        },
        { inHeader: tokenInHeader, cookies: OWN_COOKIES, queryToken: TOKEN_QUERY },
        // Applications get names in lower case. Source: ASGI specification.
      ).map(([name, value]) => [name.toLowerCase(), value] as const),
      client: [request.ip, remotePort ?? 0],
      server: [localAddress ?? '', localPort ?? 0],
      ...(isWebSocket ? { subprotocols: subprotocolsOf(raw) } : {}),
      ...(waitsForContinue(raw) ? { expectsContinue: true } : {}),
    };
  }

  /** The container has answered: the response is its own from here. @returns headers of the platform */
  #begun(): HeaderList {
    this.#hasBegun = true;
    clearTimeout(this.#limit);
    const added = headersOf(this.#reply);
    this.#reply.hijack();
    return [...added, ['x-task-id', this.#taskId ?? '']];
  }

  /** Ends the task without a head within the execution limit. A body that still arrives begins the limit anew. */
  #limitHead(seconds: number): void {
    this.#bodyGrew = false;
    this.#limit = setTimeout(() => {
      if (this.#hasBegun || this.#isOver) return;
      if (this.#bodyGrew) this.#limitHead(seconds);
      else this.#endTask(noHead(seconds));
    }, seconds * 1000);
    this.#limit.unref();
  }

  #endTask(ending: Ending): void {
    const taskId = this.#taskId;
    if (taskId === undefined) return;
    this.#parts.cancel(taskId, ending).catch((error: unknown) => {
      this.#parts.log.warn({ err: error, taskId }, 'a streamed call could not be ended');
      this.#answer({ ...ending, body: JSON.stringify({ error: ending.detail }) });
    });
  }

  #webSocketClosed(code: number): void {
    this.#over(code !== 1006);
    this.#onGone();
    if (code === 1006) return this.#left();
    this.#last = setTimeout(() => this.#callerLeft(), AFTER_CLOSE_MS);
    this.#last.unref();
    if (this.#finished !== undefined) clearTimeout(this.#last);
  }

  /** The exchange is over; what follows depends on how the task ends. */
  #over(isWhole: boolean, byContainer = false): void {
    clearTimeout(this.#limit);
    clearTimeout(this.#last);
    this.#endIsNear = byContainer;
    const protocol = this.protocol;
    if (this.#hasBegun) {
      this.#isOver = true;
      this.#parts.streamMetrics.ended.inc({ protocol, result: isWhole ? 'whole' : 'cut' });
      if (isWhole && protocol === 'http' && this.#finished === undefined) this.#boundRest();
      return;
    }
    if (this.#isOver) return;
    this.#isBrokenOff = true;
    const refusal = this.#program?.refusal;
    if (refusal !== undefined) return this.#refused(refusal);
    // The stream ended without a head: the end of the task has the reason, if it comes soon.
    if (this.#finished !== undefined) return this.#answer(this.#finished);
    this.#last = setTimeout(() => {
      this.#endIsNear = false;
      this.#answer(undefined);
    }, LAST_BYTES_MS);
  }

  /** An application may go on after its response: its execution limit begins anew. */
  #boundRest(): void {
    const { timeoutSeconds } = this.#to.target.config;
    if (timeoutSeconds === 0) return;
    this.#limit = setTimeout(() => this.#endTask(tooLongAfter(timeoutSeconds)), timeoutSeconds * 1000);
    this.#limit.unref();
  }

  /** The task has ended. */
  #end(finished: Finished): void {
    this.#finished = finished;
    this.#forget();
    if (this.#isOver) {
      clearTimeout(this.#limit);
      clearTimeout(this.#last);
      return;
    }
    // The bytes come by another way than the end, and may be behind it.
    const mayFollow = finished.status === 'COMPLETE' || (this.#program !== undefined && !this.#isBrokenOff);
    const isBehind = mayFollow && this.#exchange !== undefined;
    if (this.#hasBegun) {
      return finished.status === 'COMPLETE' ? undefined : this.#cutBehind(finished);
    }
    if (finished.status === 'CANCELLED' && this.#exchange === undefined && this.#parts.openCalls.isStopping) {
      // A container at another replica had the task, and no way to this one. The application has seen nothing.
      return this.#comeAgain();
    }
    if (!isBehind) return this.#answer(finished);
    clearTimeout(this.#last);
    this.#last = setTimeout(() => this.#answer(undefined), LAST_BYTES_MS);
  }

  /** Cuts an answer whose task has failed or was ended, once its last bytes had time to come. */
  #cutBehind(finished: Finished): void {
    const seenBytes = this.#exchange?.sentBytes;
    this.#last = setTimeout(() => {
      // An application may raise behind a whole answer, which a slow caller still reads.
      const isHeldUp = this.#exchange?.waitsForCaller === true || this.#exchange?.sentBytes !== seenBytes;
      if (finished.status === 'ERROR' && isHeldUp) this.#cutBehind(finished);
      else this.#exchange?.cut();
    }, LAST_BYTES_MS);
    this.#last.unref();
  }

  refuse(): void {
    if (this.#isOver || this.#hasBegun) return;
    // An application that has the request may have done its work: only the caller knows whether to call again.
    if (this.#exchange === undefined && this.#finished === undefined) return this.#comeAgain();
    void this.#reply.header('connection', 'close');
    this.#answer(this.#finished);
    this.#exchange?.cut();
  }

  /** Answers a call that no application has seen, because this process stops. */
  #comeAgain(): void {
    void this.#reply.header('connection', 'close').header('retry-after', String(COME_AGAIN_SECONDS));
    this.#answer(undefined, STOPPING);
  }

  cut(): void {
    if (this.#hasBegun) this.#exchange?.cut();
  }

  /** Answers in the container's place. @param refusal - the answer of a call whose task has no end to tell */
  #answer(finished: Finished | undefined, refusal = BAD_GATEWAY): void {
    if (this.#isOver || this.#hasBegun) return;
    this.#isOver = true;
    this.#isAnswered = true;
    clearTimeout(this.#limit);
    clearTimeout(this.#last);
    this.#forget();
    const { raw } = this.#reply;
    if (raw.destroyed) return;
    this.#parts.streamMetrics.ended.inc({ protocol: this.protocol, result: 'answered' });
    closeUnread(this.#request, this.#reply);
    this.#request.raw.resume();
    void this.#reply.header('x-task-id', this.#taskId ?? '');
    // The application may go on, with a response that nobody gets.
    this.#giveUp();
    if (finished === undefined || finished.status === 'COMPLETE') return sendRefusal(this.#reply, refusal);
    const isOwn = this.#to.caller?.workspaceId === this.#to.target.workspaceId;
    send(this.#reply, outcomes.httpStatusOf(finished.status, finished.reason), bodyFor(finished, isOwn));
  }

  /** The caller is gone. */
  #left(): void {
    if (this.#hasLeft) return;
    this.#hasLeft = true;
    this.#isOver = true;
    clearTimeout(this.#limit);
    clearTimeout(this.#last);
    this.#forget();
    this.#exchange?.cut();
    this.#giveUp();
  }

  /** The program of a pod, which lives on, gave no response: its task has failed, whatever its supervisor tells. */
  #refused(detail: string): void {
    this.#endIsNear = true;
    if (this.#finished === undefined) this.#endTask({ status: 'ERROR', reason: 'handler_error', detail });
    this.#answer(undefined, new Refusal(502, 'error', detail));
  }

  /** Ends the task, since nobody waits for it. A container that is gone says so soon: its reason goes first. */
  #giveUp(): void {
    if (this.#finished !== undefined) return;
    if (!this.#endIsNear) return this.#callerLeft();
    this.#last = setTimeout(() => this.#callerLeft(), OWN_END_MS);
    this.#last.unref();
  }
}
