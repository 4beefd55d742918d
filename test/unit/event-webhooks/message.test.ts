import { createHmac } from 'node:crypto';
import { Webhook } from 'standardwebhooks';
import { describe, expect, test } from 'vitest';
import type { CloudEvent } from '#shared/api/rest/events.ts';
import { WEBHOOK_KINDS, filtersProblem, kindsOf } from '#scheduler/tasks/event-webhooks/filters.ts';
import { MOST_BODY_BYTES, bodyOf, messageOf, newSecret } from '#scheduler/tasks/event-webhooks/message.ts';

const event = (data: Record<string, unknown>): CloudEvent => ({
  specversion: '1.0',
  id: '0123456789abcdef01234567',
  source: 'longshore',
  type: 'task.updated',
  time: '2030-01-01T00:00:00.000Z',
  datacontenttype: 'application/json',
  workspaceid: '00000000-0000-4000-8000-000000000000',
  data,
});

describe('the message of an event', () => {
  test('is signed by every secret in the published way, and by the newest in the older one', () => {
    const secrets = [newSecret(), newSecret()];
    const { body, headers } = messageOf(event({ id: 'ü' }), secrets, Date.now() + 500);
    const text = Buffer.from(body).toString('utf8');
    for (const secret of secrets) expect(new Webhook(secret).verify(text, { ...headers })).toEqual(event({ id: 'ü' }));
    expect(() => new Webhook(newSecret()).verify(text, { ...headers })).toThrow('No matching signature');
    const [newest = ''] = secrets;
    expect(headers['X-Beta9-Signature']).toBe(`sha256=${createHmac('sha256', newest).update(body).digest('hex')}`);
    expect(headers).toMatchObject({ 'X-Beta9-Event': 'task.updated', 'webhook-id': event({}).id });
    // A message that is repeated much later has another time, and the same id.
    const late = messageOf(event({}), secrets, Date.now() - 3600_000);
    expect(() => new Webhook(newest).verify(Buffer.from(late.body).toString(), { ...late.headers })).toThrow('too old');
    expect(late.headers['webhook-id']).toBe(headers['webhook-id']);
  });

  test('has at most 256 KiB, whatever its data are', () => {
    const small = { id: 'a', stub_config: 'x'.repeat(1_000) };
    expect(JSON.parse(bodyOf(event(small)).toString())).toEqual(event(small));
    for (const data of [
      { id: 'a', stub_config: 'x'.repeat(MOST_BODY_BYTES) },
      { id: 'a', text: 'ü'.repeat(MOST_BODY_BYTES), list: [1] },
      { id: 'a', list: Array.from({ length: MOST_BODY_BYTES }, () => 1) },
      Object.fromEntries([['id', 'a'], ...Array.from({ length: 30_000 }, (_, n) => [`field_${n}`, 'value'] as const)]),
    ]) {
      const body = bodyOf(event(data));
      expect(body.length).toBeLessThanOrEqual(MOST_BODY_BYTES);
      expect(JSON.parse(body.toString())).toMatchObject({ id: event({}).id, data: { id: 'a' } });
    }
  });
});

describe('filters', () => {
  test('are resolved to kinds; the audit trail is named by none', () => {
    expect(kindsOf([])).toEqual(WEBHOOK_KINDS);
    expect(kindsOf(['*'])).toEqual(WEBHOOK_KINDS);
    expect(kindsOf(['task.*', 'stub.deploy'])).toEqual(['task.created', 'task.updated', 'stub.deploy']);
    expect(WEBHOOK_KINDS.filter((kind) => /^(?:audit|container|gateway|llm|platform)\./.test(kind))).toEqual([]);
  });

  test.for([[[]], [['*']], [['task.*']], [['t*']], [['task.updated', 'stub.state.*']]] as const)(
    '%j are taken',
    ([filters]) => {
      expect(filtersProblem(filters)).toBeUndefined();
    },
  );

  test.for([
    ['audit.*'],
    ['audit.token.created'],
    ['container.*'],
    ['container.log'],
    ['task'],
    ['*.updated'],
    ['task.**'],
    [''],
    ['toString'],
    ['webhook.test'],
  ] as const)('%j is refused by its name', ([filter]) => {
    expect(filtersProblem(['task.updated', filter])).toContain(JSON.stringify(filter));
  });
});
