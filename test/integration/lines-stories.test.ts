// Random interleavings of the steps of three replicas on the synchronous tasks of one deployment, on real Redis. Tasks
// are accepted anywhere, served by two machines that dial now this replica and now that one, and given back. Messages
// get lost, and callers leave. In any order: no task runs twice, every caller is answered, and nothing is left.
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { expect } from 'vitest';
import type { MachineId, TaskId } from '#shared/domain/ids.ts';
import type { AttemptResult } from '#scheduler/tasks/dispatch/attempts.ts';
import type { ReadyContainer, RunOrder } from '#scheduler/tasks/dispatch/slots.ts';
import { waitFor } from '../helpers/services.ts';
import type { Accepted } from '../helpers/submissions.ts';
import { submitted } from '../helpers/submissions.ts';
import type { Process } from './tasks-fixture.ts';
import { aTarget, PlayedLink } from './tasks-fixture.ts';
import type { Cluster } from './lines-fixture.ts';
import { eavesdrop, live, passTime, test } from './lines-fixture.ts';

const SEEDS = 20;
const SLOTS = 2;
let machines = 0;

/** A machine with one container. */
interface Machine {
  readonly id: MachineId;
  link: PlayedLink;
  at: Process;
  container: ReadyContainer;
  readonly running: RunOrder[];
}

class Story {
  readonly target = aTarget();
  readonly #cluster: Cluster;
  readonly #replicas: readonly Process[];
  readonly #cut: Set<Process>;
  readonly #machines: Machine[] = [];
  readonly #tasks: Accepted[] = [];
  readonly #answers = new Map<TaskId, string>();
  readonly #runs = new Map<TaskId, number>();
  readonly seen: Set<string>;

  constructor(cluster: Cluster, replicas: readonly Process[], cut: Set<Process>, seen: Set<string>) {
    this.#cluster = cluster;
    this.#replicas = replicas;
    this.#cut = cut;
    this.seen = seen;
    for (const at of [0, 1]) {
      machines += 1;
      const id = `m-story-${machines}` as MachineId;
      const machine = { id, at: this.#replica(at), running: [] } as unknown as Machine;
      machine.link = this.#link(machine);
      machine.container = cluster.serve(machine.at, this.target, machine.link, SLOTS);
      this.#machines.push(machine);
    }
  }

  #replica(at: number): Process {
    return this.#replicas[at % this.#replicas.length] as Process;
  }

  #machine(at: number): Machine {
    return this.#machines[at % this.#machines.length] as Machine;
  }

  #link(machine: Machine): PlayedLink {
    const link = new PlayedLink(machine.id);
    link.onRun = (order) => {
      machine.running.push(order);
      this.#runs.set(order.taskId, (this.#runs.get(order.taskId) ?? 0) + 1);
      this.seen.add('ran');
    };
    // An agent that is told to end an attempt says so, also of one that it never had.
    link.cancel = (taskId, token) => {
      if (link.mode === 'lose') return;
      const at = machine.running.findIndex((order) => order.token === token);
      if (at >= 0) machine.running.splice(at, 1);
      const { containerId } = machine.container;
      this.#report(machine, { taskId, token, containerId, outcome: 'cancelled' });
    };
    return link;
  }

  async submit(at: number): Promise<void> {
    const task = await submitted(this.#replica(at), this.target);
    this.#tasks.push(task);
    void task.finished.then(({ status }) => {
      this.#answers.set(task.taskId, status);
      this.seen.add(status);
    });
  }

  end(at: number): void {
    const machine = this.#machine(at);
    if (machine.link.mode === 'lose') return;
    const order = machine.running.shift();
    if (order !== undefined) this.#report(machine, { ...order, outcome: 'ok' });
  }

  #report({ id, at }: Machine, result: Pick<AttemptResult, 'taskId' | 'token' | 'containerId' | 'outcome'>): void {
    setImmediate(() => void at.reports.result(id, { ...result, durationMs: 1, body: Buffer.from('{}') }));
  }

  refuse(at: number): void {
    const { id, at: one, link, running } = this.#machine(at);
    if (link.mode === 'lose') return;
    const order = running.shift();
    if (order === undefined) return;
    this.#runs.set(order.taskId, (this.#runs.get(order.taskId) ?? 0) - 1);
    this.seen.add('refused');
    void one.reports.refused(id, order.taskId, order.token, 'busy');
  }

  /** The machine's link breaks: what is sent over it is lost, until the machine dials. */
  breakLink(at: number): void {
    this.#machine(at).link.mode = 'lose';
  }

  async dial(at: number): Promise<void> {
    const machine = this.#machine(at);
    machine.link.mode = 'lose';
    machine.at = this.#replica(at >> 1);
    machine.link = this.#link(machine);
    await this.#cluster.dial(machine.at, machine.link, { running: machine.running.map(live) });
    machine.container = this.#cluster.serve(
      machine.at,
      this.target,
      machine.link,
      SLOTS,
      machine.container.containerId,
    );
    this.seen.add('dialled');
  }

  cut(at: number): void {
    this.#cut.add(this.#replica(at));
  }

  mend(at: number): void {
    this.#cut.delete(this.#replica(at));
  }

  hangUp(at: number): void {
    this.#tasks[at % Math.max(1, this.#tasks.length)]?.callerLeft();
  }

  async wait(): Promise<void> {
    passTime(1_100);
    for (const { peers } of this.#replicas) {
      await peers.moves.tick();
      await peers.crossing.tick();
    }
  }

  check(): void {
    for (const [taskId, runs] of this.#runs) expect(runs, `runs of ${taskId}`).toBeLessThan(2);
  }

  async comeToRest(): Promise<void> {
    this.#cut.clear();
    for (const at of [0, 1]) if (this.#machine(at).link.mode === 'lose') await this.dial(at);
    await waitFor(
      async () => {
        await this.wait();
        for (const at of [0, 1]) this.end(at);
        for (const one of this.#replicas) this.#cluster.tellLoads(one);
        this.check();
        return this.#answers.size === this.#tasks.length;
      },
      'every caller is answered',
      20_000,
    );
    await waitFor(async () => {
      await this.wait();
      for (const at of [0, 1]) this.end(at);
      return this.#replicas.every(({ lines, attempts }) => lines.line.size === 0 && attempts.size === 0);
    }, 'nothing is left');
    await waitFor(() => this.#machines.every(({ container }) => container.inFlight === 0), 'all slots are free');
    this.check();
    for (const { taskId } of this.#tasks)
      for (const { lines } of this.#replicas) expect(lines.order(taskId)).toBeUndefined();
  }
}

const STEPS = [
  'submit',
  'submit',
  'submit',
  'end',
  'end',
  'refuse',
  'dial',
  'breakLink',
  'cut',
  'mend',
  'hangUp',
  'wait',
] as const;

test('whatever order the steps come in, a task runs once at most, every caller is answered, and nothing is left', async ({
  cluster,
}) => {
  const replicas = [await cluster.start(), await cluster.start(), await cluster.start()];
  const cut = new Set<Process>();
  for (const one of replicas) eavesdrop(one, () => cut.has(one));
  const seen = new Set<string>();
  const aStep = fc.tuple(fc.constantFrom(...STEPS), fc.nat(5));
  await fc.assert(
    fc.asyncProperty(fc.array(aStep, { minLength: 10, maxLength: 40 }), async (steps) => {
      const story = new Story(cluster, replicas, cut, seen);
      for (const [step, at] of steps) {
        await story[step](at);
        if (at > 2) await turn();
        story.check();
      }
      await story.comeToRest();
    }),
    { numRuns: SEEDS, endOnFailure: true },
  );
  expect([...seen].toSorted()).toEqual(expect.arrayContaining(['COMPLETE', 'dialled', 'ran', 'refused']));
});
