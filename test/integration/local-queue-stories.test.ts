// Random interleavings of the steps of three replicas on the synchronous tasks of one deployment, on real Redis. Tasks
// are accepted anywhere, served at one or two replicas, forwarded, received, refused, taken back, and cancelled at any
// replica. Replicas stand still and are declared dead, and containers come and go. In any order: no task runs twice,
// every caller is answered once, and nothing is left.
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { expect } from 'vitest';
import type { InstanceId, QueueName, TaskId } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import { AppError } from '#shared/errors.ts';
import type { ReadyContainer, RunOrder } from '#scheduler/tasks/dispatch/slots.ts';
import { waitFor } from '../helpers/services.ts';
import type { Accepted } from '../helpers/submissions.ts';
import { dead, inLocalQueue, jobs, swept, test as base } from './local-queue-fixture.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, PlayedLink } from './tasks-fixture.ts';

const SEEDS = 30;
/** A forwarded task that nothing is heard of is taken back after this. */
const SILENT_MS = 20;

interface Replica extends Process {
  /** While set, the replica's fetches wait: it stands still between hearing of a task and sending it. */
  gate: PromiseWithResolvers<void> | undefined;
}

/** The current story, which decides what the replicas believe of each other. */
let story: Story | undefined;

const test = base.extend('replicas', async ({ start }): Promise<readonly Replica[]> => {
  const replicas: Replica[] = [];
  for (let n = 0; n < 3; n += 1) {
    const made: Process = await start({
      forwardTo: (queue, forwardedTo) => story?.receiverOf(queue, made.instance, forwardedTo),
      isOursAlone: () => story?.isServedOnlyBy(made.instance) ?? true,
      beforeFetch: () => replicas[n]?.gate?.promise,
      silentMs: SILENT_MS,
    });
    replicas.push({ ...made, gate: undefined });
  }
  return replicas;
});

interface Sent {
  readonly order: RunOrder;
  readonly by: Replica;
}

class Story {
  readonly target = aTarget();
  readonly #replicas: readonly Replica[];
  readonly #tasks: Accepted[] = [];
  readonly #open = new Set<Accepted>();
  /** Steps that are still going on. */
  readonly playing: unknown[] = [];
  readonly #containers = new Map<Replica, ReadyContainer>();
  #underWay: Sent[] = [];
  /** Number of orders by task that their agent did not give back. */
  readonly #runs = new Map<TaskId, number>();
  readonly seen = new Set<string>();

  constructor(replicas: readonly Replica[]) {
    this.#replicas = replicas;
    this.serve(0);
  }

  #replica(at: number): Replica {
    return this.#replicas[at % this.#replicas.length] as Replica;
  }

  receiverOf(_queue: QueueName, self: InstanceId, forwardedTo: (one: InstanceId) => number): InstanceId | undefined {
    const others = [...this.#containers.keys()].filter(({ instance }) => instance !== self);
    return others.find(({ instance }) => forwardedTo(instance) < 8)?.instance;
  }

  isServedOnlyBy(instance: InstanceId): boolean {
    return [...this.#containers.keys()].every((one) => one.instance === instance);
  }

  // ---- steps --------------------------------------------------------------------------------------------------------

  submit(at: number): void {
    const one = this.#replica(at);
    const submitting = async (): Promise<void> => {
      const submission = await one.submissions.submit(this.target, { input: '{}' });
      // A very busy machine may refuse a submission, which promises nothing to its caller.
      if (submission.kind === 'unavailable') return;
      if (submission.kind !== 'accepted') throw new Error(`not accepted: ${submission.kind}`);
      this.#tasks.push(submission);
      this.#open.add(submission);
      void submission.finished.then(({ status }) => {
        this.#open.delete(submission);
        this.seen.add(status);
      });
    };
    this.playing.push(submitting());
  }

  /** A container becomes ready at that replica. */
  serve(at: number): void {
    const one = this.#replica(at);
    if (this.#containers.has(one)) return;
    const link = new PlayedLink();
    link.onRun = (order) => {
      this.#underWay.push({ order, by: one });
      this.#runs.set(order.taskId, (this.#runs.get(order.taskId) ?? 0) + 1);
      const isReceived = one.queues.has(order.taskId) && !one.queues.isResponsibleFor(order.taskId);
      this.seen.add(isReceived ? 'ran forwarded' : 'ran');
    };
    this.#containers.set(one, one.container(this.target.queue, link, 2));
    for (const other of this.#replicas) other.queues.check(this.target.queue);
  }

  /** The replica's container takes no more tasks. */
  leave(at: number): void {
    const one = this.#replica(at);
    const container = this.#containers.get(one);
    if (container === undefined || this.#containers.size === 1) return;
    one.slots.leave(container.containerId);
    this.#containers.delete(one);
    for (const other of this.#replicas) other.queues.check(this.target.queue);
  }

  end(at: number): Promise<boolean> | undefined {
    const [sent] = this.#underWay.splice(at % Math.max(1, this.#underWay.length), 1);
    return sent?.by.result(sent.order);
  }

  refuse(at: number): Promise<void> | undefined {
    const [sent] = this.#underWay.splice(at % Math.max(1, this.#underWay.length), 1);
    if (sent === undefined) return undefined;
    this.#runs.set(sent.order.taskId, (this.#runs.get(sent.order.taskId) ?? 0) - 1);
    this.seen.add('refused');
    return sent.by.reports.refused(sent.order.taskId, sent.order.token, 'busy');
  }

  standStill(at: number): void {
    this.#replica(at).gate ??= Promise.withResolvers();
  }

  goOn(at: number): void {
    const one = this.#replica(at);
    one.gate?.resolve();
    one.gate = undefined;
  }

  hangUp(at: number): void {
    const open = [...this.#open];
    open[at % Math.max(1, open.length)]?.callerLeft();
  }

  async cancel(at: number): Promise<void> {
    const open = [...this.#open];
    const task = open[at % Math.max(1, open.length)];
    const by = this.#replica(at);
    const job = task && (await by.queues.read(this.target.queue, task.taskId));
    if (job === undefined) return;
    const ending = { status: 'CANCELLED', reason: 'request_cancelled', detail: 'x' } as const;
    if (await by.completion.takeOut(this.target.queue, job, ending)) this.seen.add('cancelled elsewhere');
  }

  /** Another replica wrongly counts that replica as dead for a moment, and ends its unsent tasks. */
  async mistake(at: number): Promise<void> {
    const { instance } = this.#replica(at);
    dead.add(instance);
    const ended = await swept(this.#replica(at + 1));
    dead.delete(instance);
    if (ended > 0) this.seen.add('ended for a dead one');
  }

  async beSilent(): Promise<void> {
    // The time itself is the step: nothing is heard of a loan for longer than it may be silent.
    await sleep(2 * SILENT_MS);
  }

  // ---- the end ------------------------------------------------------------------------------------------------------

  async settle(): Promise<void> {
    for (const at of this.#replicas.keys()) this.goOn(at);
    await Promise.all(this.playing);
    await waitFor(
      async () => {
        for (const [one, container] of this.#containers)
          if (container.accepting) one.dispatcher.wake(this.target.queue);
        await Promise.all(this.#underWay.splice(0).map(({ by, order }) => by.result(order)));
        return this.#open.size === 0;
      },
      'every caller is answered',
      20_000,
    );
    for (const [taskId, runs] of this.#runs) if (runs > 1) throw new Error(`task ${taskId} ran ${runs} times`);
    const [one] = this.#replicas as [Replica];
    const { queue } = this.target;
    await waitFor(
      async () => (await inLocalQueue(one, queue)).length + (await jobs(one, queue)) === 0,
      'nothing is left',
    );
    await waitFor(() => this.#underWay.length === 0, 'no late order');
    for (const { taskId } of this.#tasks) {
      const record = await waitFor(async () => {
        const found = await one.records.read(taskId);
        return found !== undefined && isTerminalTask(found.status) && found;
      }, 'it is recorded how it ended');
      const ran = (this.#runs.get(taskId) ?? 0) === 1;
      if (record.status === 'COMPLETE' && !ran) throw new Error(`task ${taskId} is COMPLETE and never ran`);
    }
  }
}

/** A Redis that does not answer in time, on a machine that is very busy, leaves a step undone. */
async function unlessSlow(step: Promise<unknown> | undefined | void): Promise<void> {
  try {
    await step;
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'queues_unavailable') throw error;
  }
}

const STEPS = {
  submit: 12,
  end: 6,
  refuse: 1,
  serve: 2,
  leave: 1,
  standStill: 2,
  goOn: 2,
  hangUp: 1,
  cancel: 2,
  mistake: 1,
  beSilent: 2,
} as const;
type StepName = keyof typeof STEPS;
const NAMES = Object.entries(STEPS).flatMap(([name, weight]) => Array<StepName>(weight).fill(name as StepName));

test(
  `${SEEDS} random stories of three replicas: no task runs twice, each caller is answered, nothing is left`,
  { timeout: 120_000 },
  async ({ replicas }) => {
    const seen = new Set<string>();
    const aStep = fc.record({ name: fc.constantFrom(...NAMES), at: fc.nat({ max: 11 }), turns: fc.nat({ max: 3 }) });
    await fc.assert(
      fc.asyncProperty(fc.array(aStep, { minLength: 10, maxLength: 40, size: 'max' }), async (steps) => {
        const told = new Story(replicas);
        story = told;
        for (const { name, at, turns } of steps) {
          // The step is not awaited, so that its effects meet the next steps.
          const playing = unlessSlow(told[name](at));
          if (name === 'beSilent' || name === 'mistake') await playing;
          else told.playing.push(playing);
          for (let n = 0; n < turns; n += 1) await turn();
        }
        await told.settle();
        for (const what of told.seen) seen.add(what);
      }),
      // No shrinking after a failure: its cause would make each further story too slow to wait for.
      { numRuns: SEEDS, unbiased: true, endOnFailure: true },
    );
    expect([...seen].toSorted()).toEqual(
      expect.arrayContaining(['CANCELLED', 'COMPLETE', 'cancelled elsewhere', 'ran', 'ran forwarded', 'refused']),
    );
  },
);
