// `longshore webhook`: addresses that the workspace's events are sent to. A secret is printed once, alone on stdout.
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import type { WebhookCreateFlags, WebhookDeliveriesFlags, WebhookUpdateFlags } from '../flags.ts';
import { ageOf } from '../format.ts';
import { listField, numberField, objectField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note, print, printJson } from '../print.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { listedIdOf } from './whole-ids.ts';

const pathOf = async (client: Client, ...rest: readonly string[]): Promise<string> =>
  ['/webhook', await client.workspaceId(), ...rest.map(encodeURIComponent)].join('/');

const idOf = async (client: Client, text: string): Promise<string> =>
  listedIdOf(client, text, 'webhook', `${await pathOf(client)}?limit=1000`);

/** Kinds in a flag, with commas between them; an empty text is every kind. */
const kindsIn = (text: string): readonly string[] =>
  text
    .split(',')
    .map((kind) => kind.trim())
    .filter((kind) => kind !== '');

const kindsOf = (webhook: JsonObject): string => {
  const kinds = textsField(webhook, 'event_types');
  return kinds.length === 0 ? 'all' : kinds.join(',');
};

const unknown =
  (id: string) =>
  (error: unknown): never => {
    if (!(error instanceof CliError) || error.answerCode !== 'webhook_not_found') throw error;
    throw new CliError(`there is no webhook ${id} in this workspace: \`longshore webhook list\` shows them`, {
      cause: error,
    });
  };

/** Prints the secret alone on stdout, for scripts; the description goes to stderr. */
export async function runWebhookCreate(url: string, flags: WebhookCreateFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const webhook = await client.restCall('POST', await pathOf(client), {
      url,
      ...(flags.events === undefined ? {} : { event_types: kindsIn(flags.events) }),
      ...(flags.description === undefined ? {} : { description: flags.description }),
      ...(flags.retry === true ? { retry: true } : {}),
      ...(flags.inactive === true ? { active: false } : {}),
    });
    showSecret(invocation, webhook, `webhook ${textField(webhook, 'id')} (${kindsOf(webhook)})`);
  });
}

export async function runWebhookRotate(reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await idOf(client, reference);
    const webhook = await client.restCall('POST', await pathOf(client, id, 'rotate')).catch(unknown(id));
    showSecret(invocation, webhook, `webhook ${id}: the secret before signs for 24 hours more`);
  });
}

function showSecret(invocation: Invocation, webhook: JsonObject, said: string): void {
  if (invocation.options.json === true) {
    printJson(webhook);
    return;
  }
  print(textField(webhook, 'secret'));
  note(`${said}; its secret is shown this once: keep it`);
}

export async function runWebhookList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.rest(`${await pathOf(client)}?limit=1000`);
    const nowMs = Date.now();
    showList(
      invocation,
      listField(answer, 'data'),
      ['ID', 'URL', 'EVENTS', 'ACTIVE', 'RETRY', 'LAST DELIVERY', 'SKIPPED'],
      (webhook) => [
        textField(webhook, 'id'),
        textField(webhook, 'url'),
        kindsOf(webhook),
        webhook['active'] === true ? 'yes' : `no (${textField(webhook, 'inactive_reason') || 'made so'})`,
        webhook['retry'] === true ? 'yes' : 'no',
        lastOf(webhook, nowMs),
        String(numberField(webhook, 'skipped_events')),
      ],
    );
  });
}

function lastOf(webhook: JsonObject, nowMs: number): string {
  const last = objectField(webhook, 'last_delivery');
  const at = textField(last, 'at');
  if (at === '') return '-';
  return `${textField(last, 'error') || `answered ${numberField(last, 'status_code')}`}, ${ageOf(at, nowMs)} ago`;
}

export async function runWebhookUpdate(
  reference: string,
  flags: WebhookUpdateFlags,
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await idOf(client, reference);
    const change = {
      ...(flags.to === undefined ? {} : { url: flags.to }),
      ...(flags.events === undefined ? {} : { event_types: kindsIn(flags.events) }),
      ...(flags.description === undefined ? {} : { description: flags.description }),
      ...(flags.retry === undefined ? {} : { retry: flags.retry }),
      ...(flags.active === undefined ? {} : { active: flags.active }),
    };
    const webhook = await client.restCall('PUT', await pathOf(client, id), change).catch(unknown(id));
    showDone(invocation, webhook, [
      `webhook ${id} is ${webhook['active'] === true ? 'active' : 'inactive'}: ${kindsOf(webhook)} to ${textField(webhook, 'url')}`,
    ]);
  });
}

export async function runWebhookDelete(reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await idOf(client, reference);
    await client.restCall('DELETE', await pathOf(client, id)).catch(unknown(id));
    showDone(invocation, { id, done: 'deleted' }, [`deleted webhook ${id}`]);
  });
}

/** Exit code 1 when the test was not delivered. */
export async function runWebhookTest(reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await idOf(client, reference);
    const delivery = await client.restCall('POST', await pathOf(client, id, 'test')).catch(unknown(id));
    showOutcome(invocation, delivery, 'the test');
  });
}

export async function runWebhookDeliveries(
  reference: string,
  flags: WebhookDeliveriesFlags,
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await idOf(client, reference);
    const query = new URLSearchParams({
      limit: String(flags.limit),
      ...(flags.state === undefined ? {} : { state: flags.state }),
    });
    const path = await pathOf(client, id, 'deliveries');
    const answer = await client.rest(`${path}?${query.toString()}`).catch(unknown(id));
    const nowMs = Date.now();
    showList(
      invocation,
      listField(answer, 'data'),
      ['ID', 'EVENT', 'STATE', 'TRIES', 'OUTCOME', 'FIRST TRY', 'NEXT TRY'],
      (delivery) => [
        textField(delivery, 'id'),
        textField(delivery, 'event_type'),
        textField(delivery, 'state'),
        String(numberField(delivery, 'attempts')),
        outcomeOf(delivery),
        `${ageOf(textField(delivery, 'created_at'), nowMs)} ago`,
        textField(delivery, 'next_attempt_at') || '-',
      ],
    );
  });
}

/** Exit code 1 when it was not delivered. */
export async function runWebhookRedeliver(reference: string, delivery: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await idOf(client, reference);
    const deliveries = await pathOf(client, id, 'deliveries');
    const deliveryId = await listedIdOf(client, delivery, 'delivery', `${deliveries}?limit=1000`);
    const path = `${deliveries}/${encodeURIComponent(deliveryId)}/redeliver`;
    const sent = await client.restCall('POST', path).catch(unknown(id));
    showOutcome(invocation, sent, textField(sent, 'event_type'));
  });
}

const outcomeOf = (delivery: JsonObject): string =>
  textField(delivery, 'error') || `answered ${numberField(delivery, 'status_code')}`;

function showOutcome(invocation: Invocation, delivery: JsonObject, what: string): void {
  const isDelivered = textField(delivery, 'state') === 'delivered';
  const took = `${numberField(delivery, 'duration_ms')} ms`;
  if (invocation.options.json === true) printJson(delivery);
  if (!isDelivered) throw new CliError(`${what} was not delivered: ${outcomeOf(delivery)}`);
  if (invocation.options.json !== true) print(`${what} was delivered: ${outcomeOf(delivery)} in ${took}`);
}
