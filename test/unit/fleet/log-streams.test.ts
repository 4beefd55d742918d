import { EventEmitter } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import type { LogBatch__Output } from '#shared/protocol/generated/messages.ts';
import { LogStreams } from '#scheduler/fleet/logs/log-streams.ts';
import type { LogCall } from '#scheduler/fleet/logs/log-streams.ts';

test('behind a batch that could not be written, a stream takes no further one: that would count for both', async () => {
  const written: number[] = [];
  const append = (_machine: MachineId, { seq }: LogBatch__Output) => {
    if (seq === 2) return Promise.reject(new Error('the database is away'));
    written.push(seq);
    return Promise.resolve();
  };
  const acknowledged: number[] = [];
  const call = Object.assign(new EventEmitter(), {
    pause: () => undefined,
    resume: () => undefined,
    end: () => undefined,
    write: ({ seq }: { seq: number }) => acknowledged.push(seq),
  });
  new LogStreams({ append }, pino({ level: 'silent' })).serve('m-1' as MachineId, call as unknown as LogCall);
  for (const seq of [1, 2, 3]) {
    call.emit('data', { seq, records: [], sender: '' });
    await setImmediate();
  }
  expect(written).toEqual([1]);
  expect(acknowledged).toEqual([1]);
});
