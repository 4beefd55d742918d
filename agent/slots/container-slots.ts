/**
 * The runner processes of one container, as the agent sees them. Decides which of them can take an attempt, which
 * attempts they hold, and how those end with a process or the container. Owned by the slot table; called for every
 * task, so the path of a frame has no await. Must stay true: a process never holds more attempts than its slots; an
 * attempt ends exactly once; a frame that names another attempt changes nothing. The frames: frames.ts.
 */
import type { Socket } from 'node:net';
import { dirname, join } from 'node:path';
import type { RunTask__Output } from '#shared/protocol/generated/messages.ts';
import { OOM_TEXT } from '#shared/domain/task-failures.ts';
import type { Log } from '#shared/log.ts';
import { Adoption, MAX_NAME_LENGTH, MOST_HOLDING } from './adoption.ts';
import type { Attempt, UnacknowledgedAttempts, Outcome } from './attempts.ts';
import { keyOf } from './attempts.ts';
import type { Rule } from './budget.ts';
import { SocketBudget } from './budget.ts';
import { RunnerConnection } from './connection.ts';
import { ContainerAttempts } from './container-attempts.ts';
import { MODES, MOST_RETIRED } from './container-facts.ts';
import type {
  ContainerExit,
  ContainerSlotsEvents,
  ReadyFacts,
  SlotChange,
  SlotFacts,
  StreamWay,
} from './container-facts.ts';
import { MAX_TEXT_BYTES, cutText, exitText, failureText } from './failure-text.ts';
import type { Frame } from '#shared/protocol/frames.ts';
import { RUNNER_PROTOCOL, numberOf, textOf } from '#shared/protocol/frames.ts';
import { SocketListener } from './listener.ts';
import { RunnerProcesses } from './processes.ts';
import { firstHeader, partHeader } from './run-frames.ts';
import { ContainerStreams } from './streams.ts';

/** Time for a process to dial again after its connection ended, before its attempts end too. */
const AWAY_MS = 1000;
/** The same time in `single` mode: the container's exit brings the exit code, so it is awaited longer. */
const AWAY_SINGLE_MS = 5000;
/** Time between cancel and kill. */
const KILL_AFTER_MS = 10_000;
/** Wait for the last frames of an exited container. */
const LAST_FRAMES_MS = 1000;
/** Age up to which an `oom` event explains a child that died by SIGKILL. */
const OOM_RECENT_MS = 5000;
/** Exit code of a container whose first process was killed. */
const KILLED = 137;
/** Why an attempt goes back that a retired process did not begin. */
const RELOADED = 'reloaded';
/** Bound on the line of a log frame; the rest is dropped. */
const MAX_LINE_BYTES = 64 * 1024;
/**
 * Connections beside one of each process and the control connection: older ones whose end is not known yet, and
 * strangers.
 */
const SPARE_CONNECTIONS = 64;
/** Bound on inputs that a process has not read: above it the process gets no further task. */
const MOST_UNSENT_BYTES = 256 * 1024 * 1024;

/** A text of a frame that leaves this file; empty when it is too long. */
function nameOf(header: Frame['header'], name: string): string {
  const text = textOf(header, name);
  return text.length > MAX_NAME_LENGTH ? '' : text;
}

export class ContainerSlots {
  readonly facts: SlotFacts;
  #ready: ReadyFacts | undefined;
  #accepting = true;
  #over = false;
  #leaving = false;
  #oomAtMs = -Infinity;
  /** End of the notice of a container that leaves for another one; undefined: it stays. */
  #interruptedUntilMs: number | undefined;
  #everGreeted = false;
  /**
   * Numbers of processes that ended while the container served, until they serve again. With `spawn` that takes as long
   * as `on_start`.
   */
  readonly #restarting = new Set<number>();
  /** As it was told last. */
  #slotChange: SlotChange = { restarting: 0, retired: 0 };
  readonly #processes = new RunnerProcesses();
  readonly #attempts: UnacknowledgedAttempts;
  readonly #events: ContainerSlotsEvents;
  readonly #log: Log;
  readonly #listener: SocketListener;
  readonly #workers: number;
  readonly #budget: SocketBudget;
  readonly #adoption: Adoption;
  readonly #streams: ContainerStreams;
  readonly #own: ContainerAttempts;

  constructor(
    facts: SlotFacts,
    attempts: UnacknowledgedAttempts,
    events: ContainerSlotsEvents,
    way: StreamWay,
    log: Log,
  ) {
    this.facts = facts;
    this.#ready = facts.ready;
    this.#attempts = attempts;
    this.#events = events;
    this.#log = log;
    this.#workers = Math.max(1, facts.workers);
    this.#budget = new SocketBudget(this.#workers);
    const adopted = facts.adopted ?? facts.ready !== undefined;
    this.#adoption = new Adoption(adopted, this.#mostProcesses, this.#mostHeld, performance.now());
    this.#listener = new SocketListener(facts.socketPath, (socket) => this.#accept(socket), {
      most: SPARE_CONNECTIONS + 2 * this.#workers,
      onRefused: () => this.#countRare(1),
    });
    this.#streams = new ContainerStreams({
      ...way,
      path: join(dirname(facts.socketPath), 'streams.sock'),
      slots: () => this.#mostHeld,
      onFault: () => this.#countFault(),
    });
    this.#own = new ContainerAttempts({
      containerId: facts.containerId,
      timeoutMs: facts.timeoutMs,
      all: attempts,
      adoption: this.#adoption,
      streams: this.#streams,
      countRare: (count) => this.#countRare(count),
      onTimeout: (attempt) => this.cancel(attempt, 'timeout'),
      say: (taskId, text) =>
        this.#events.onLog({
          containerId: this.facts.containerId,
          taskId,
          stream: 'stderr',
          line: `longshore: ${text}`,
        }),
    });
  }

  listen(): Promise<void> {
    return this.#listener.listen();
  }

  get ready(): ReadyFacts | undefined {
    return this.#ready;
  }

  /** Whether any runner ever sent a hello: distinguishes an image without Python from a runner that failed. */
  get everGreeted(): boolean {
    return this.#everGreeted;
  }

  /** After an agent restart: whether every expected process has dialled again. */
  get areRunnersConnected(): boolean {
    if (this.#processes.control === undefined) return false;
    if (this.#ready === undefined || this.#ready.mode === 'single') return true;
    return this.#processes.serving >= (this.#ready.mode === 'reload' ? 1 : this.facts.workers);
  }

  /** Stops taking attempts; running ones go on. */
  stopAccepting(graceMs?: number): void {
    this.#accepting = false;
    if (graceMs !== undefined) this.#processes.control?.send('drain', { graceMs });
  }

  /** Tells the runner processes that the container leaves for another one. @param noticeMs - 0: it stays after all */
  interrupt(noticeMs: number): void {
    if (noticeMs > 0 === (this.#interruptedUntilMs !== undefined)) return;
    this.#interruptedUntilMs = noticeMs > 0 ? performance.now() + noticeMs : undefined;
    for (const connection of this.#processes) if (connection.greeted) this.#tellInterrupted(connection);
  }

  #tellInterrupted(connection: RunnerConnection): void {
    const untilMs = this.#interruptedUntilMs;
    const noticeMs = untilMs === undefined ? 0 : Math.max(1, Math.round(untilMs - performance.now()));
    connection.send('interrupt', { noticeMs });
  }

  noteOom(): void {
    this.#oomAtMs = performance.now();
  }

  /**
   * Lets the processes go, for `ms` at most: what they have sent is read, and what they print from now on waits there
   * for the next agent.
   */
  async leave(ms: number): Promise<void> {
    this.#leaving = true;
    this.#listener.close();
    await this.#processes.endAll(ms);
  }

  /** Closes the socket and every connection; surviving runners dial again when an agent listens again. */
  close(): void {
    this.#over = true;
    this.#listener.close();
    this.#streams.close();
    this.#processes.destroyAll();
  }

  // ---- from the scheduler -------------------------------------------------------------------------------------------

  /**
   * Hands an attempt, or a further part of its input, to a process. @returns the reason of a refusal; else undefined
   */
  run(task: RunTask__Output): string | undefined {
    const key = keyOf(task.taskId, task.token);
    const known = this.#attempts.get(key);
    if (task.part > 0) {
      const connection = known === undefined ? undefined : this.#processes.connectionOf(known.key);
      connection?.send('run', partHeader(task), task.input);
      return undefined;
    }
    if (known !== undefined) {
      if (known.result !== undefined) this.#attempts.send({ result: known.result });
      return undefined;
    }
    if (!this.#accepting) return 'stopping';
    if (this.#ready === undefined) return 'not_ready';
    const connection = this.#processes.pick();
    if (connection === undefined) return 'no_free_slot';
    if (connection.unsentBytes > MOST_UNSENT_BYTES) return 'not_reading';
    const listening = task.stream ? this.#streams.listen() : undefined;
    if (task.stream && !this.#streams.expect(task.taskId, task.token)) return 'no_session';
    // A header that is too long for a frame throws here, before a slot is taken.
    const isAnnounced = this.#ready.mode === 'reload';
    const send = (): void => connection.send('run', firstHeader(task, isAnnounced), task.input);
    if (listening === undefined) send();
    const attempt = this.#own.begin(task, connection.process);
    attempt.begun = !isAnnounced;
    connection.inHand.add(key);
    this.#attempts.start(attempt);
    const neverSent = (outcome: Outcome, text: string): void => {
      connection.inHand.delete(key);
      this.#own.end(attempt, outcome, text);
    };
    // The first streamed call of a container waits until its socket is there, and may be cancelled meanwhile.
    listening?.then(
      () => (attempt.ending === undefined ? send() : neverSent(attempt.ending, '')),
      (error: unknown) => {
        this.#log.warn({ err: error, containerId: this.facts.containerId }, 'no socket for streamed calls');
        neverSent('lost', 'the agent could not open the socket for streamed calls');
      },
    );
    return undefined;
  }

  cancel(attempt: Attempt, reason: string): void {
    if (attempt.result !== undefined || attempt.ending !== undefined) return;
    // A superseded task goes back to its queue. Another scheduler hears of this, where the first died before it did so.
    attempt.ending = reason === 'timeout' ? 'timeout' : reason === 'superseded' ? 'lost' : 'cancelled';
    this.#processes.connectionOf(attempt.key)?.send('cancel', { taskId: attempt.taskId, token: attempt.token, reason });
    attempt.killTimer = setTimeout(() => this.#kill(attempt), KILL_AFTER_MS);
    attempt.killTimer.unref();
  }

  /** The scheduler has the result: the process that sent it may drop it. */
  acked({ process, taskId, token }: Attempt): void {
    this.#processes.tellAcked(process, this.#ready?.mode === 'single', { taskId, token });
  }

  // ---- the container's end ------------------------------------------------------------------------------------------

  /**
   * The container is gone: after its last frames, its remaining attempts end with it.
   * @returns whether the log of a task says how it ended
   */
  async containerEnded(exit: ContainerExit): Promise<boolean> {
    this.#accepting = false;
    await this.#processes.none(LAST_FRAMES_MS);
    this.close();
    let isTold = false;
    for (const attempt of this.#attempts.inHand()) {
      if (attempt.containerId !== this.facts.containerId) continue;
      if (exit.kind === 'exited') {
        isTold ||= attempt.result === undefined && attempt.ending === undefined;
        this.#own.end(attempt, 'exited', this.#exitedText(exit, attempt));
      } else this.#own.end(attempt, 'lost', 'container stopped');
    }
    return isTold;
  }

  #exitedText(exit: ContainerExit, attempt: Attempt): string {
    if (exit.text !== undefined) return exit.text;
    const outOfMemory = exit.oomKilled && exit.exitCode === KILLED && !this.#ranOutBefore(attempt);
    return outOfMemory ? OOM_TEXT : exitText(exit.exitCode, undefined);
  }

  /**
   * Whether memory ran out before this attempt, and not since: that killed a child process of an earlier one. The
   * engine never takes its flag back, and its event may come too late.
   */
  #ranOutBefore({ sinceMs }: Attempt): boolean {
    return Number.isFinite(this.#oomAtMs) && this.#oomAtMs < sinceMs;
  }

  // ---- connections --------------------------------------------------------------------------------------------------

  #accept(socket: Socket): void {
    if (this.#over || this.#leaving) {
      socket.destroy();
      return;
    }
    if (!this.#countRare(1)) {
      socket.destroy();
      return;
    }
    const connection = new RunnerConnection(socket, {
      onRead: (_one, bytes, frames) => this.#budget.read(bytes, frames, performance.now()),
      onFrame: (one, frame) => this.#onFrame(one, frame),
      onClose: (one) => this.#onClose(one),
      onBadFrame: (_one, error) => {
        this.#log.info({ err: error, containerId: this.facts.containerId }, 'runner sent a frame that cannot be read');
        this.#countFault();
      },
    });
    this.#processes.add(connection);
  }

  // ---- the budget ---------------------------------------------------------------------------------------------------

  get #slotsOfEach(): number {
    return Math.max(1, this.facts.concurrentRequests);
  }

  get #mostSlots(): number {
    return this.#workers * this.#slotsOfEach;
  }

  /** Processes that there may be at once, retired ones included. */
  get #mostProcesses(): number {
    return this.#workers + (this.#ready?.mode === 'reload' ? MOST_RETIRED : 0);
  }

  /** Attempts that the processes may hold at once, retired ones included. */
  get #mostHeld(): number {
    return this.#mostProcesses * this.#slotsOfEach;
  }

  /**
   * Counts connections, hellos, starts, ends of processes, and results that nobody needs: a runner has few. @returns
   * false when there are too many
   */
  #countRare(count: number): boolean {
    if (this.#budget.rare(count, performance.now())) return true;
    this.#violate('rare_frames', 'more connections, starts and repeated results than runners have');
    return false;
  }

  #countFault(): void {
    if (!this.#budget.fault(performance.now())) this.#violate('bad_frames', 'too many frames that cannot be read');
  }

  /** Stops reading from the container; its attempts end with it. */
  #violate(rule: Rule, text: string): void {
    if (this.#over) return;
    this.#accepting = false;
    this.close();
    this.#events.onViolation(
      this.facts.containerId,
      rule,
      `the container broke the rules of its agent socket: ${text}`,
    );
  }

  #onFrame(connection: RunnerConnection, frame: Frame): void {
    if (this.#over) return;
    if (!connection.greeted && frame.kind !== 'hello') {
      connection.destroy();
      this.#countFault();
      return;
    }
    const { header } = frame;
    switch (frame.kind) {
      case 'hello':
        this.#onHello(connection, header);
        return;
      case 'starting':
        if (!this.#countRare(1)) return;
        this.#events.onStarting(this.facts.containerId, nameOf(header, 'phase'));
        return;
      case 'ready':
        this.#onReady(connection, header);
        return;
      case 'failed':
        this.#onFailed(connection, frame);
        return;
      case 'started': {
        const attempt = this.#own.of(connection, header);
        if (attempt === undefined) return;
        attempt.begun = true;
        this.#attempts.start(attempt);
        return;
      }
      case 'chunk':
        this.#own.chunk(connection, frame);
        return;
      case 'result':
        this.#own.result(connection, frame);
        if (this.#processes.retirementOf(connection.process) !== undefined) this.#tellSlots();
        return;
      case 'retire':
        this.#onRetire(connection, header);
        return;
      case 'returned':
        this.#onReturned(connection, header);
        return;
      case 'log':
        this.#events.onLog({
          containerId: this.facts.containerId,
          taskId: nameOf(header, 'taskId'),
          stream: textOf(header, 'stream') === 'stderr' ? 'stderr' : 'stdout',
          line: this.#budget.line(performance.now()) ? frame.body.toString('utf8', 0, MAX_LINE_BYTES) : undefined,
        });
        return;
      case 'exited':
        this.#onExited(header);
        return;
      // Frames that only the agent sends, and frames of a newer runner.
      case 'welcome':
      case 'run':
      case 'acked':
      case 'cancel':
      case 'kill':
      case 'drain':
      case 'interrupt':
      // Frames of streamed calls have a socket of their own.
      case 'stream':
      case 'request':
      case 'response':
      case 'data':
      case 'end':
      case 'reading':
      case 'message':
      case 'close':
      // Frames of supervisors, likewise.
      case 'control':
      case 'exit':
      case undefined:
        return;
    }
  }

  #onHello(connection: RunnerConnection, header: Frame['header']): void {
    const version = numberOf(header, 'version');
    const containerId = textOf(header, 'containerId');
    if (version < 1 || (containerId !== '' && containerId !== this.facts.containerId)) {
      this.#log.warn(
        { containerId: this.facts.containerId, version, helloContainerId: containerId },
        'runner refused: wrong version or container',
      );
      connection.destroy();
      this.#countFault();
      return;
    }
    const holding = header['holding'];
    const pairs = Array.isArray(holding) ? (holding as unknown[]) : [];
    if (connection.greeted) return this.#violate('second_hello', 'a second hello on one connection');
    if (pairs.length > MOST_HOLDING)
      return this.#violate(
        'holding',
        `a hello that names ${pairs.length} attempts, and a runner at most ${MOST_HOLDING}`,
      );
    const process = numberOf(header, 'process');
    if (!Number.isInteger(process) || process < 0 || process >= this.#mostProcesses) {
      connection.destroy();
      this.#countFault();
      return;
    }
    if (!this.#countRare(1)) return;
    connection.greeted = true;
    if (!this.#everGreeted) this.#events.onStarting(this.facts.containerId, 'hello');
    this.#everGreeted = true;
    connection.process = process;
    connection.pid = numberOf(header, 'pid');
    connection.slots = Math.min(this.#slotsOfEach, Math.max(0, Math.floor(numberOf(header, 'slots'))));
    connection.control = connection.slots === 0;
    this.#processes.greeted(connection);
    if (connection.control && this.#ready?.mode === 'single') connection.slots = this.#ready.slots;
    connection.send('welcome', { version: Math.min(version, RUNNER_PROTOCOL) });
    if (this.#interruptedUntilMs !== undefined) this.#tellInterrupted(connection);
    this.#takeBack(connection, pairs);
    if (connection.control) return;
    const retirement = this.#processes.retirementOf(process);
    if (retirement !== undefined) connection.send('drain', { graceMs: retirement.graceMs });
    this.#restarting.delete(process);
    this.#tellSlots();
  }

  /**
   * Gives the process back the attempts that it names: known ones, and those that an earlier agent process handed over.
   */
  #takeBack(connection: RunnerConnection, pairs: readonly unknown[]): void {
    const held = new Set<string>();
    let unknown = 0;
    for (const item of pairs) {
      if (typeof item !== 'object' || item === null) continue;
      const { taskId, token } = item as { taskId?: unknown; token?: unknown };
      if (typeof taskId !== 'string' || typeof token !== 'string') continue;
      if (taskId.length > MAX_NAME_LENGTH || token.length > MAX_NAME_LENGTH)
        return this.#violate('holding', 'a hello that names attempts by longer names than there are');
      const key = keyOf(taskId, token);
      held.add(key);
      let attempt = this.#attempts.get(key);
      if (attempt === undefined) {
        unknown += 1;
        const mayRun = connection.inHand.size < connection.slots;
        const nowMs = performance.now();
        const wasAcked = this.#attempts.wasAcked(key);
        if (wasAcked || !mayRun || !this.#adoption.takesRunning(nowMs)) {
          // A result that follows is acknowledged when the scheduler has it.
          if (wasAcked || !this.#adoption.awaitsResults(nowMs)) connection.send('acked', { taskId, token });
          continue;
        }
        attempt = this.#own.adopt(connection, taskId, token);
      } else if (attempt.containerId !== this.facts.containerId) continue;
      else if (attempt.begun === false) attempt.begun = undefined;
      clearTimeout(attempt.awayTimer);
      attempt.process = connection.process;
      if (attempt.result === undefined) connection.inHand.add(key);
    }
    if (unknown > 0 && !this.#countRare(unknown / 4)) return;
    if (connection.control !== (this.#ready?.mode === 'single')) return;
    // The process is back without these attempts: they ended with the old process.
    for (const key of this.#processes.takeAway(connection.process)) {
      const attempt = this.#attempts.get(key);
      if (attempt !== undefined && !held.has(key)) this.#own.end(attempt, 'exited', 'process exited');
    }
  }

  #onReady(connection: RunnerConnection, header: Frame['header']): void {
    if (!this.#countRare(1)) return;
    const said = textOf(header, 'mode');
    const mode = MODES.find((one) => one === said);
    if (mode === undefined) return;
    const wanted = this.#mostSlots;
    const slots = numberOf(header, 'slots') > 0 ? Math.min(Math.floor(numberOf(header, 'slots')), wanted) : wanted;
    const first = this.#ready === undefined;
    this.#ready = { mode, slots, onStartMs: Math.max(0, Math.round(numberOf(header, 'onStartMs'))) };
    if (mode === 'single') connection.slots = slots;
    if (first) this.#events.onReady(this.facts.containerId, this.#ready);
  }

  #onFailed(connection: RunnerConnection, frame: Frame): void {
    if (!this.#countRare(1)) return;
    const text = failureText(textOf(frame.header, 'error'), frame.body.toString('utf8'));
    // Secrets are hidden before the text gets its final size: a secret that was cut in two would not be found.
    this.#events.onFailed(this.facts.containerId, cutText(text, 4 * MAX_TEXT_BYTES));
    connection.send('acked', {});
  }

  /** The first process reports that another one has ended. */
  #onExited(header: Frame['header']): void {
    if (!this.#countRare(1)) return;
    const process = numberOf(header, 'process');
    const signal = numberOf(header, 'signal');
    const code = signal > 0 ? 128 + signal : numberOf(header, 'code');
    const oom = signal === 9 && performance.now() - this.#oomAtMs < OOM_RECENT_MS;
    const retirement = this.#processes.retirementOf(process);
    const text = exitText(code, retirement && performance.now() - retirement.sinceMs);
    const pid = numberOf(header, 'pid');
    for (const key of this.#processes.exited(process, pid)) {
      const attempt = this.#attempts.get(key);
      if (attempt === undefined) continue;
      const goesBack = retirement !== undefined && attempt.begun === false && attempt.ending === undefined;
      if (goesBack) this.#own.giveBack(attempt, RELOADED);
      else this.#own.end(attempt, 'exited', oom && !this.#ranOutBefore(attempt) ? OOM_TEXT : text);
    }
    if (!this.#accepting || this.#ready === undefined || !Number.isInteger(process)) return;
    const isOne = process >= 0 && process < this.#workers && this.#ready.mode !== 'reload';
    if (isOne && !this.#processes.servesAgain(process, pid)) this.#restarting.add(process);
    this.#tellSlots();
  }

  /** The first process of a development server reports that a change retires another one. */
  #onRetire({ control }: RunnerConnection, header: Frame['header']): void {
    if (!control || this.#ready?.mode !== 'reload' || !this.#countRare(1)) return;
    const process = numberOf(header, 'process');
    if (!Number.isInteger(process) || process < 0 || process >= this.#mostProcesses) return;
    const graceMs = Math.max(0, numberOf(header, 'graceMs'));
    // Each task that went to it before is read there before this frame.
    this.#processes.retire(process, graceMs)?.send('drain', { graceMs });
    this.#tellSlots();
  }

  /** A retired process will not begin this attempt. Its word decides where it is unknown whether the attempt began. */
  #onReturned(connection: RunnerConnection, header: Frame['header']): void {
    if (this.#ready?.mode !== 'reload') return;
    const attempt = this.#own.of(connection, header);
    if (attempt === undefined || attempt.begun === true) return;
    connection.inHand.delete(attempt.key);
    this.#own.giveBack(attempt, RELOADED);
    this.#tellSlots();
  }

  #tellSlots(): void {
    const isMissing = this.#ready?.mode === 'reload' && this.#processes.serving === 0;
    const restarting = isMissing ? this.#slotsOfEach : this.#restarting.size * this.#slotsOfEach;
    const change = { restarting, retired: this.#processes.retiredAttempts };
    const told = this.#slotChange;
    if (change.restarting === told.restarting && change.retired === told.retired) return;
    this.#slotChange = change;
    this.#events.onSlots(this.facts.containerId, change);
  }

  #onClose(connection: RunnerConnection): void {
    this.#processes.closed(connection);
    if (this.#over || this.#leaving || connection.inHand.size === 0) return;
    const waitMs = this.#ready?.mode === 'single' ? AWAY_SINGLE_MS : AWAY_MS;
    let away = false;
    for (const key of connection.inHand) {
      const attempt = this.#attempts.get(key);
      if (attempt === undefined || attempt.result !== undefined) continue;
      away = true;
      const takeBack = this.#processes.goesAway(connection.process, key);
      attempt.awayTimer = setTimeout(() => {
        takeBack();
        this.#own.end(attempt, 'exited', 'process exited');
        this.#tellSlots();
      }, waitMs);
      attempt.awayTimer.unref();
    }
    connection.inHand.clear();
    if (away) this.#events.onSuspect(this.facts.containerId);
  }

  // ---- attempts -----------------------------------------------------------------------------------------------------

  /** Ten seconds after the cancel: kills the process, or the whole container where there is no other way. */
  #kill(attempt: Attempt): void {
    if (attempt.result !== undefined) return;
    const connection = this.#processes.connectionOf(attempt.key);
    const alone = connection !== undefined && !connection.control && connection.inHand.size === 1;
    const mode = this.#ready?.mode;
    const isForked = mode === 'fork' || mode === 'spawn' || mode === 'reload';
    if (isForked && alone && this.#processes.control !== undefined) {
      this.#processes.control.send('kill', { process: connection.process });
      return;
    }
    this.stopAccepting();
    this.#events.onMustStop(this.facts.containerId, attempt.ending === 'timeout' ? 'timeout' : 'killed');
  }
}
