/** Verbs of webhooks. Nothing listens at their address. */
import { expect } from 'vitest';
import { NOBODY } from '../verbs-fixture.ts';
import type { Json } from '../verbs-fixture.ts';
import type { Verb } from '../verbs-kit.ts';
import { READS_NOTHING } from './parts.ts';
import type { RestParts } from './parts.ts';

const HOOK = { url: 'http://127.0.0.1:1/hook' };

export function webhookVerbs(parts: RestParts): readonly Verb[] {
  const { platform, rest, ownId } = parts;
  let webhook = NOBODY;
  const aWebhook = async (): Promise<string> => {
    const { json } = await platform().call(rest('POST /api/v1/webhook/{ws}'), { ...HOOK, description: 'before' });
    webhook = String(json['id']);
    return webhook;
  };
  const aDelivery = async (): Promise<string> =>
    String((await platform().call(rest(`POST /api/v1/webhook/{ws}/${await aWebhook()}/test`))).json['id']);
  const webhooksOf = async (): Promise<Json[]> =>
    (await platform().call(rest('GET /api/v1/webhook/{ws}?limit=1000'))).json['data'] as Json[];
  const webhookIs = async (id: string): Promise<Json | undefined> =>
    (await webhooksOf()).find((one) => one['id'] === id);
  let hintBefore: unknown;
  return [
    {
      name: 'GET /webhook/{ws}',
      line: (id) => `GET /webhook/${id}`,
      make: ownId,
      ok: { data: [], next: '' },
      unknown: { status: 401 },
      malformed: { line: 'GET /webhook/{ws}?cursor=%21' },
    },
    {
      name: 'POST /webhook/{ws}',
      line: (id) => `POST /webhook/${id}`,
      body: () => ({ ...HOOK, event_types: ['task.*'] }),
      make: ownId,
      ok: { event_types: ['task.*'], active: true, retry: false, secret: expect.stringMatching(/^whsec_/) },
      unknown: { status: 401 },
      malformed: { body: '{"event_types": 5}', answer: { status: 422 } },
      done: async () => (await webhooksOf()).length > 0,
    },
    {
      name: 'GET /webhook/{ws}/{webhookId}',
      line: (id) => `GET /webhook/{ws}/${id}`,
      make: aWebhook,
      ok: { description: 'before', event_types: [], last_delivery: null, skipped_events: 0 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      ...READS_NOTHING,
    },
    {
      name: 'PUT /webhook/{ws}/{webhookId}',
      line: (id) => `PUT /webhook/{ws}/${id}`,
      body: () => ({ description: 'after', active: false }),
      make: aWebhook,
      ok: { ...HOOK, description: 'after', active: false, inactive_reason: 'switched_off' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { body: '{"retry": "perhaps"}', answer: { status: 422 } },
      done: async (id) => (await webhookIs(id))?.['description'] === 'after',
    },
    {
      name: 'DELETE /webhook/{ws}/{webhookId}',
      line: (id) => `DELETE /webhook/{ws}/${id}`,
      make: aWebhook,
      ok: { status: 200, text: '{}' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async (id) => (await webhookIs(id)) === undefined,
    },
    {
      name: 'POST /webhook/{ws}/{webhookId}/rotate',
      line: (id) => `POST /webhook/{ws}/${id}/rotate`,
      make: async () => {
        const id = await aWebhook();
        hintBefore = (await webhookIs(id))?.['secret_hint'];
        return id;
      },
      ok: { secret: expect.stringMatching(/^whsec_/) },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async (id) => (await webhookIs(id))?.['secret_hint'] !== hintBefore,
    },
    {
      name: 'POST /webhook/{ws}/{webhookId}/test',
      line: (id) => `POST /webhook/{ws}/${id}/test`,
      make: aWebhook,
      ok: { event_type: 'webhook.test', state: 'failed', error: 'the connection failed (ECONNREFUSED)' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async (id) => (await webhookIs(id))?.['last_delivery'] !== null,
    },
    {
      name: 'GET /webhook/{ws}/{webhookId}/deliveries',
      line: (id) => `GET /webhook/{ws}/${id}/deliveries`,
      make: async () => {
        await aDelivery();
        return webhook;
      },
      ok: { data: [expect.objectContaining({ event_type: 'webhook.test', attempts: 1 })], next: '' },
      unknown: { status: 404 },
      foreign: { status: 401 },
      malformed: { line: `GET /webhook/{ws}/${NOBODY}/deliveries?state=lost` },
    },
    {
      name: 'POST /webhook/{ws}/{webhookId}/deliveries/{deliveryId}/redeliver',
      line: (id) => `POST /webhook/{ws}/${webhook}/deliveries/${id}/redeliver`,
      make: aDelivery,
      ok: { event_type: 'webhook.test', attempts: 2 },
      unknown: { status: 404 },
      foreign: { status: 401 },
      done: async () => {
        const { json } = await platform().call(rest(`GET /api/v1/webhook/{ws}/${webhook}/deliveries`));
        return (json['data'] as Json[])[0]?.['attempts'] === 2;
      },
    },
  ];
}
