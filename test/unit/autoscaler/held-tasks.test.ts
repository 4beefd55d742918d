// Tasks that flow control holds want no container.
import { expect, test } from 'vitest';
import { ScaleInputReader } from '#scheduler/control/autoscaler/scale-input-reader.ts';
import type { ScaleInputReaderParts } from '#scheduler/control/autoscaler/scale-input-reader.ts';
import type { QueueName } from '#shared/domain/ids.ts';

const QUEUE = 'tq-1' as QueueName;
const readerOf = (soon: number | undefined): ScaleInputReader =>
  new ScaleInputReader({ due: { countWithin: () => soon } } as unknown as ScaleInputReaderParts);

test.for([
  ['held tasks alone', undefined, { waiting: 0, active: 0, delayed: 0, held: 50 }, 0],
  ['tasks that run beside held ones', undefined, { waiting: 1, active: 2, delayed: 0, held: 50 }, 3],
  ['retries whose times nobody knows', undefined, { waiting: 0, active: 0, delayed: 4, held: 50 }, 4],
  ['a retry that is due soon', 1, { waiting: 0, active: 0, delayed: 4, held: 50 }, 1],
] as const)('%s', ([, soon, depth, wanted]) => {
  expect(readerOf(soon).inFlight(QUEUE, { prioritized: 0, ...depth })).toBe(wanted);
});
