import { expect, test } from 'vitest';
import { phaseTable, phasesOf, readyLine } from '../../../bench/phases.ts';

const line = (time: number, durationMs: number, phases: Record<string, number>): string =>
  JSON.stringify({ level: 30, time, containerId: 'c', durationMs, phases, slots: 1, msg: 'container ready' });

test('a cold call is cut into what was before the agent, its steps, and the answer', () => {
  const ready = readyLine(line(1000, 300, { proceed: 10, start: 200, hello: 60, on_start: 30 }));
  if (ready === undefined) throw new Error('not read');
  const figures = phasesOf([{ postedAtMs: 680, answeredAtMs: 1005, ready }]);
  expect(figures).toMatchObject({ decide: 20, proceed: 10, holder: 0, start: 200, hello: 60, on_start: 30, answer: 5 });
  expect(phaseTable(figures)).toMatch(/^start +200 +62 %/m);
  expect(phaseTable(figures)).toMatch(/^all +325/m);
});

test('other lines of the log are passed over', () => {
  expect(readyLine('{"msg":"agent started"}')).toBeUndefined();
  expect(readyLine('')).toBeUndefined();
  // An agent that adopted the container's start logs no times.
  expect(readyLine('{"msg":"container ready","time":1}')).toBeUndefined();
});
