import { describe, expect, test } from 'vitest';
import { status } from '@grpc/grpc-js';
import { reasonOf } from '#agent/grpc-errors.ts';
import { FailedDials } from '#agent/upstream/failed-dials.ts';
import { AppError } from '#shared/errors.ts';

describe('dials that fail', () => {
  test('are told once, and once a minute', () => {
    const dials = new FailedDials();
    expect(dials.failed('refused', 1000)).toEqual({ tries: 1, forSeconds: 0 });
    for (let nowMs = 2000; nowMs < 61_000; nowMs += 1000) expect(dials.failed('refused', nowMs)).toBeUndefined();
    expect(dials.failed('refused', 61_000)).toEqual({ tries: 61, forSeconds: 60 });
    expect(dials.failed('refused', 62_000)).toBeUndefined();
  });

  test('are told anew for another reason', () => {
    const dials = new FailedDials();
    dials.failed('refused', 1000);
    expect(dials.failed('no route', 2000)).toEqual({ tries: 2, forSeconds: 1 });
    for (let nowMs = 3000; nowMs < 61_000; nowMs += 1000)
      expect(dials.failed(nowMs % 2000 === 0 ? 'refused' : 'no route', nowMs)).toBeUndefined();
  });

  test('begin anew after an answer', () => {
    const dials = new FailedDials();
    dials.failed('refused', 1000);
    dials.succeeded();
    expect(dials.failed('refused', 2000)).toEqual({ tries: 1, forSeconds: 0 });
  });
});

describe('the reason of a failure in one line', () => {
  test('is the text of gRPC', () => {
    const error = Object.assign(new Error('14 UNAVAILABLE: no connection'), {
      code: status.UNAVAILABLE,
      details: 'no connection',
    });
    expect(reasonOf(error)).toBe('no connection');
  });

  test('names the cause, once', () => {
    const cause = new Error('connect ECONNREFUSED 127.0.0.1:1995');
    expect(reasonOf(new AppError('scheduler_unreachable', 'cannot reach it', { cause }))).toBe(
      'cannot reach it: connect ECONNREFUSED 127.0.0.1:1995',
    );
    expect(reasonOf(new Error(`failed: ${cause.message}`, { cause }))).toBe(`failed: ${cause.message}`);
  });

  test('is said of an end without an error, too', () => {
    expect(reasonOf(undefined)).toBe('ended without an error');
  });
});
