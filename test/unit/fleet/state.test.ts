import { describe, expect, test } from 'vitest';
import {
  HEALTH_TRANSITIONS,
  healthAfter,
  INTENT_TRANSITIONS,
  intentAfter,
  lostAfterMs,
} from '#scheduler/fleet/state.ts';
import type { Health, HealthEvent, Intent, IntentEvent } from '#scheduler/fleet/state.ts';

const HEALTHS = Object.keys(HEALTH_TRANSITIONS) as Health[];
const INTENTS = Object.keys(INTENT_TRANSITIONS) as Intent[];

/** Every move that there is; all others are refused. */
const HEALTH_MOVES: readonly (readonly [Health, HealthEvent, Health])[] = [
  ['PENDING', 'join_expired', 'EXPIRED'],
  ['PENDING', 'hello', 'RECONCILING'],
  ['LOST', 'hello', 'RECONCILING'],
  ['EXPIRED', 'token_issued', 'PENDING'],
  ['RECONCILING', 'resolved', 'READY'],
  ['READY', 'hello', 'RECONCILING'],
  ['SUSPECT', 'hello', 'RECONCILING'],
  ['RECONCILING', 'hello', 'RECONCILING'],
  ['READY', 'silent', 'SUSPECT'],
  ['RECONCILING', 'silent', 'SUSPECT'],
  ['SUSPECT', 'overdue', 'LOST'],
  ...HEALTHS.filter((health) => health !== 'DELETED').map((health) => [health, 'delete', 'DELETED'] as const),
];
const INTENT_MOVES: readonly (readonly [Intent, IntentEvent, Intent])[] = [
  ['active', 'cordon', 'cordoned'],
  ['active', 'drain', 'draining'],
  ['cordoned', 'drain', 'draining'],
  ['draining', 'emptied', 'drained'],
  ['cordoned', 'uncordon', 'active'],
  ['draining', 'uncordon', 'active'],
  ['drained', 'uncordon', 'active'],
  ['drained', 'found_live', 'draining'],
];

describe('a machine', () => {
  test('has the moves of its health that are listed, and no others', () => {
    const events = new Set(HEALTH_MOVES.map(([, event]) => event));
    for (const from of HEALTHS)
      for (const event of events) {
        const listed = HEALTH_MOVES.find((move) => move[0] === from && move[1] === event);
        expect([from, event, healthAfter(from, event)]).toEqual([from, event, listed?.[2]]);
      }
    expect(HEALTHS.flatMap((health) => Object.keys(HEALTH_TRANSITIONS[health]))).toHaveLength(HEALTH_MOVES.length);
  });

  test('has the moves of its intent that are listed, and no others', () => {
    const events = new Set(INTENT_MOVES.map(([, event]) => event));
    for (const from of INTENTS)
      for (const event of events) {
        const listed = INTENT_MOVES.find((move) => move[0] === from && move[1] === event);
        expect([from, event, intentAfter(from, event)]).toEqual([from, event, listed?.[2]]);
      }
    expect(INTENTS.flatMap((intent) => Object.keys(INTENT_TRANSITIONS[intent]))).toHaveLength(INTENT_MOVES.length);
    expect(intentAfter('what nobody knows', 'cordon')).toBeUndefined();
  });

  test('is waited for 90 s, and 180 s when its agent only restarts', () => {
    expect([null, 'shutdown', 'restarting'].map((goodbye) => lostAfterMs(goodbye, 90_000))).toEqual([
      90_000, 90_000, 180_000,
    ]);
  });
});
