// Calls of deployments with an Idempotency-Key.
import { describe, expect, test } from 'vitest';
import type { Submission } from '../../../scheduler/tasks/admission/calls.ts';
import { accepted, aTarget, call, playCalls, played, STUB, tasks } from './invoke-fixture.ts';

playCalls();

describe('an Idempotency-Key', () => {
  const withKey = async (path: string, key: string | string[], body = '{}', token = 'w', host = 'localhost:1994') => {
    tasks.calls = [];
    const answer = await call(path, body, token, 'POST', host, { 'idempotency-key': key });
    return { ...answer, sent: tasks.calls[0]?.idempotency };
  };

  test('goes with the call, plain or as a quoted string, up to 255 characters', async () => {
    for (const [header, key] of [
      ['k-1', 'k-1'],
      ['"8e03978e-40d5-43dd-bc93-6894a57f9324"', '8e03978e-40d5-43dd-bc93-6894a57f9324'],
      ['x'.repeat(255), 'x'.repeat(255)],
    ] as const) {
      const { status, sent } = await withKey('/endpoint/hello', header);
      expect([status, sent?.key]).toEqual([200, key]);
    }
    expect((await call('/endpoint/hello')).status).toBe(200);
    expect(tasks.calls.at(-1)).not.toHaveProperty('idempotency');
  });

  test.for(['', '""', 'two words', 'é', 'x'.repeat(256), ['a', 'b']])('that reads %j is refused', async (header) => {
    const { status, text, sent } = await withKey('/endpoint/hello', header);
    expect([status, sent]).toEqual([400, undefined]);
    expect(JSON.parse(text)).toEqual({
      error: expect.stringContaining('Idempotency-Key must have 1 to 255'),
      code: 'invalid_idempotency_key',
    });
  });

  test('stands for the bytes of the body and the query parameters, in any order and without the token', async () => {
    const fingerprint = async (path: string, body = '{"a":1}') =>
      (await withKey(path, 'k', body)).sent?.fingerprint ?? path;
    const same = await fingerprint('/endpoint/hello?a=1&b=2');
    expect(await fingerprint('/endpoint/hello/v1?b=2&a=1&auth_token=w')).toBe(same);
    const others = [
      await fingerprint('/endpoint/hello?a=1&b=2', '{"a": 1}'),
      await fingerprint('/endpoint/hello?a=1'),
      await fingerprint('/endpoint/hello?a=1&a=1&b=2'),
      await fingerprint('/endpoint/hello'),
    ];
    expect(new Set([same, ...others]).size).toBe(5);
  });

  test('says whether its call names a version, by path and by host, and who calls', async () => {
    played.target = aTarget({ authorized: false });
    for (const [path, asksNewest, host] of [
      ['/endpoint/hello', true, undefined],
      ['/endpoint/hello/latest', true, undefined],
      ['/endpoint/hello/v1', false, undefined],
      [`/endpoint/id/${STUB}`, true, undefined],
      ['/', true, 'hello-1a2b3c4d5e6f7081.localhost'],
      ['/', false, 'hello-1a2b3c4d5e6f7081-v1.localhost'],
    ] as const) {
      expect((await withKey(path, 'k', '{}', 'w', host)).sent, path).toMatchObject({ asksNewest, isOwn: true });
    }
    expect((await withKey(`/endpoint/public/${STUB}`, 'k', '{}', '')).sent).toMatchObject({
      isOwn: false,
      callerScope: 'anybody/',
    });
    expect((await withKey(`/endpoint/public/${STUB}`, 'k', '{}', 'other')).sent).toMatchObject({
      isOwn: false,
      callerScope: 'other/',
    });
  });

  test('of an earlier call gets its answer with a header that says so; what is refused has a code', async () => {
    const earlier = {
      ...accepted(Promise.resolve({ status: 'COMPLETE', reason: 'completed', body: '1' } as const)),
      isReplay: true,
    };
    tasks.answer = () => Promise.resolve(earlier as Submission);
    expect((await withKey('/endpoint/hello', 'k')).headers['idempotency-replayed']).toBe('true');
    for (const [submission, status, code] of [
      [{ kind: 'key_reused' }, 422, 'idempotency_key_reused'],
      [{ kind: 'keys_exhausted', most: 10_000 }, 429, 'too_many_idempotency_keys'],
    ] as const) {
      tasks.answer = () => Promise.resolve(submission);
      const refused = await withKey('/endpoint/hello', 'k');
      expect([refused.status, (JSON.parse(refused.text) as { code: string }).code]).toEqual([status, code]);
    }
    tasks.answer = () => Promise.resolve({ kind: 'unavailable', reason: 'key_in_doubt', retryAfterSeconds: 5 });
    expect((await withKey('/endpoint/hello', 'k')).headers['retry-after']).toBe('5');
  });
});
