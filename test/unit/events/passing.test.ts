// Events that only pass: who gets them, what other replicas are sent, and what readers hear of those they did not get.
import { describe, expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { PassingEvents } from '#scheduler/workspaces/events/passing.ts';
import type { PassingReader } from '#scheduler/workspaces/events/passing.ts';
import { passingKindsOf } from '#scheduler/workspaces/events/kinds.ts';

const W = newId() as WorkspaceId;
const OTHER = newId() as WorkspaceId;
const KIND = 'container.metrics';

class Taker implements PassingReader {
  readonly frames: string[] = [];
  lost = 0;
  pass(frame: Buffer): void {
    this.frames.push(frame.toString());
  }
  dropped(count: number): void {
    this.lost += count;
  }
}

/** Replicas whose messages reach each other at once. */
function replicas(count: number, mostCrossing = 3) {
  const clock = { nowMs: 1_000_000 };
  const messages: unknown[] = [];
  const all = Array.from({ length: count }, () => new PassingEvents({ nowMs: () => clock.nowMs, mostCrossing }));
  let isCut = false;
  all.forEach((one, at) =>
    one.join({
      instance: `r${at}`,
      publish: (message) => {
        if (isCut) return;
        messages.push(message);
        for (const other of all) other.heard(JSON.parse(JSON.stringify(message)));
      },
    }),
  );
  return { all, clock, messages, cut: () => (isCut = true) };
}
const event = (workspaceId = W, stubId?: string) => ({
  workspaceId,
  type: KIND,
  atMs: 5,
  data: { n: 1 },
  ...(stubId === undefined ? {} : { stubId: stubId as StubId }),
});

describe('a passing event', () => {
  test('reaches the readers of its workspace who ask for its kind and subject', () => {
    const { all } = replicas(1);
    const [one] = all;
    if (one === undefined) throw new Error('there is one');
    expect(one.wants(W, KIND)).toBe(false);
    const [plain, ofStub, ofOther] = [new Taker(), new Taker(), new Taker()];
    const leave = one.subscribe(W, { types: [KIND] }, plain);
    one.subscribe(W, { types: [KIND], stubId: 's' }, ofStub);
    one.subscribe(OTHER, { types: ['gateway.endpoint.called'] }, ofOther);
    expect([one.wants(W, KIND), one.wants(OTHER, KIND)]).toEqual([true, false]);
    one.tell(event());
    one.tell(event(W, 's'));
    one.tell(event(OTHER));
    expect([plain.frames.length, ofStub.frames.length, ofOther.frames.length]).toEqual([2, 1, 0]);
    expect(plain.frames[0]).toMatch(/^event: container\.metrics\ndata: \{"seq_num":0,/);
    leave();
    one.tell(event());
    expect(plain.frames).toHaveLength(2);
    expect(one.wants(W, KIND)).toBe(true);
  });

  test('crosses to another replica only while a reader there asks, and its readers hear of those above the bound', () => {
    const { all, clock, messages, cut } = replicas(2);
    const [here, there] = all;
    if (here === undefined || there === undefined) throw new Error('there are two');
    const taker = new Taker();
    const leave = there.subscribe(W, { types: [KIND] }, taker);
    expect([here.wants(W, KIND), here.wants(OTHER, KIND)]).toEqual([true, false]);
    for (let n = 0; n < 5; n += 1) here.tell(event());
    expect([taker.frames.length, taker.lost]).toEqual([3, 0]);
    clock.nowMs += 1_000;
    here.tell(event());
    expect([taker.frames.length, taker.lost]).toEqual([4, 2]);
    leave();
    expect(here.wants(W, KIND)).toBe(false);
    const before = messages.length;
    here.tell(event());
    expect(messages).toHaveLength(before);
    // A replica that dies says nothing, and counts as gone after a while.
    there.subscribe(W, { types: [KIND] }, taker);
    cut();
    expect(here.wants(W, KIND)).toBe(true);
    clock.nowMs += 14_000;
    expect(here.wants(W, KIND)).toBe(true);
    clock.nowMs += 2_000;
    expect(here.wants(W, KIND)).toBe(false);
  });

  test('is asked for by its full name alone', () => {
    expect(passingKindsOf(undefined)).toEqual([]);
    expect(passingKindsOf(['*', 'container.*', 'task.created', 'nothing'])).toEqual([]);
    expect(passingKindsOf(['container.log', 'container.log', KIND])).toEqual(['container.log', KIND]);
  });

  test('messages that make no sense change nothing', () => {
    const [one] = replicas(1).all;
    for (const message of [null, 1, {}, { from: 'x' }, { from: 'x', wants: 1 }, { from: 'x', dropped: {} }])
      one?.heard(message);
    expect(one?.wants(W, KIND)).toBe(false);
  });
});
