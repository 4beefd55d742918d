// The line of waiting tasks against a plain list: order of arrival, whatever leaves and comes back.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { QueueName, TaskId } from '#shared/domain/ids.ts';
import type { TaskJob } from '#scheduler/stores/queues/jobs.ts';
import { Line } from '#scheduler/tasks/lines/line.ts';
import { sentHere } from '#scheduler/tasks/lines/offers.ts';

const QUEUE = 'tq-a' as QueueName;
const aJob = (number: number): TaskJob => ({ taskId: `t${number}` }) as TaskJob;

test('tasks wait in order of arrival, also those that were sent and came back', () => {
  const aStep = fc.record({ kind: fc.constantFrom('add', 'send', 'back', 'drop'), at: fc.nat({ max: 50 }) });
  fc.assert(
    fc.property(fc.array(aStep, { maxLength: 60 }), (steps) => {
      const line = new Line();
      const known: { readonly id: TaskId; waits: boolean }[] = [];
      let arrivals = 0;
      for (const { kind, at } of steps) {
        const one = known[at % Math.max(1, known.length)];
        if (kind === 'add') known.push({ id: line.add(QUEUE, aJob((arrivals += 1)), 0).job.taskId, waits: true });
        else if (one === undefined) continue;
        else if (kind === 'drop') {
          expect(line.drop(one.id)?.job.taskId).toBe(one.id);
          known.splice(known.indexOf(one), 1);
        } else {
          const place = line.get(one.id)?.place;
          if (place === undefined) throw new Error('the line lost a task');
          one.waits = kind === 'back';
          line.move(one.id, kind === 'send' ? sentHere(place) : { kind: 'waiting', attempt: place.attempt });
        }
        const waiting = known.filter(({ waits }) => waits).map(({ id }) => id);
        expect([...line.waiting(QUEUE)].map(({ job }) => job.taskId)).toEqual(waiting);
        expect(line.first(QUEUE)?.job.taskId).toBe(waiting[0]);
        expect(line.waitingCount(QUEUE)).toBe(waiting.length);
        expect(line.count(QUEUE)).toBe(known.length);
      }
    }),
  );
});

test('a queue without tasks leaves nothing behind', () => {
  const line = new Line();
  const { job } = line.add(QUEUE, aJob(1), 0);
  line.drop(job.taskId);
  expect([...line.queues()]).toEqual([]);
  expect(line.move(job.taskId, { kind: 'waiting', attempt: 1 })).toBe(false);
});
