import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ObservedContainer } from '#shared/protocol/generated/messages.ts';
import { loadLink } from '#shared/protocol/link.ts';
import { attemptParts, fitted, inParts, observedParts } from '../../../agent/slots/message-parts.ts';

const { Control } = loadLink().longshore.agent.v1.AgentLink.service;
const bytesOf = (observed: ObservedContainer[]): number =>
  Control.requestSerialize({ status: { seq: 1, full: true, containers: observed } }).length;
const anObserved = (at: number, message: string): ObservedContainer => ({
  containerId: `endpoint-${at}-${'c'.repeat(30)}`,
  assignmentId: '0198c7e0-0000-7000-8000-000000000000',
  epoch: 12345,
  phase: 'exited',
  reason: 'protocol_violation',
  message,
  exitCode: 137,
  startedAtMs: 1_764_000_000_000,
  finishedAtMs: 1_764_000_000_000,
  cpuMillicores: 64_000,
  memoryBytes: 64 * 1024 ** 3,
  gpuUuids: ['GPU-7b4ad1f7-0000-0000-0000-000000000000'],
  slots: 100,
  mode: 'single',
  onStartMs: 100_000,
});

test('a hello with many large texts keeps every container, and of each text what there is room for', () => {
  const all = [
    ...Array.from({ length: 200 }, (_, at) => anObserved(at, 'ä'.repeat(8 * 1024))),
    anObserved(999, 'short'),
  ];
  const told = fitted(all);
  expect(told.map(({ containerId }) => containerId)).toEqual(all.map(({ containerId }) => containerId));
  expect(bytesOf(told)).toBeLessThan(1024 * 1024);
  expect(told.at(-1)?.message).toBe('short');
  expect(told[0]?.message?.length).toBeGreaterThan(1000);
});

test('texts that fit are told as they are', () => {
  const all = Array.from({ length: 20 }, (_, at) => anObserved(at, 'x'.repeat(16 * 1024)));
  expect(fitted(all)).toEqual(all);
});

test('whatever the texts are, a hello stays within its size while the containers themselves do', () => {
  fc.assert(
    fc.property(fc.array(fc.string({ maxLength: 3000, unit: 'binary' }), { maxLength: 40 }), (texts) => {
      const told = fitted(
        texts.map((text, at) => anObserved(at, text)),
        40_000,
      );
      expect(told).toHaveLength(texts.length);
      expect(bytesOf(told)).toBeLessThanOrEqual(40_000);
    }),
    { numRuns: 50 },
  );
});

test('changes are told in parts, each of them once', () => {
  const all = Array.from({ length: 100 }, (_, at) => anObserved(at, 'x'.repeat(16 * 1024)));
  const parts = observedParts(all);
  expect(parts.length).toBeGreaterThan(2);
  for (const part of parts) expect(bytesOf(part)).toBeLessThan(600 * 1024);
  expect(parts.flat()).toEqual(all);
});

test('a heartbeat of 100 000 attempts is some of 512 KiB', () => {
  const all = Array.from({ length: 100_000 }, (_, at) => ({
    taskId: `0198c7e0-0000-7000-8000-${String(at).padStart(12, '0')}`,
    token: 'a'.repeat(64),
    containerId: 'endpoint-0198c7e0-0000-7000-8000-000000000000-abcdef12',
  }));
  const parts = attemptParts(all);
  for (const liveAttempts of parts)
    expect(Control.requestSerialize({ heartbeat: { liveAttempts } }).length).toBeLessThan(600 * 1024);
  expect(parts.flat()).toHaveLength(all.length);
});

test('nothing to tell is one empty part; what is too large by itself is a part of its own', () => {
  expect(inParts([], () => 1)).toEqual([[]]);
  expect(inParts([1, 9, 1], (one) => one, 5)).toEqual([[1], [9], [1]]);
});
