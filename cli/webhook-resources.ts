// The command tree's part for webhooks. Names, flags and help are here; the commands' module is loaded when one runs.
import { Option } from 'commander';
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import type { WebhookCreateFlags, WebhookDeliveriesFlags, WebhookUpdateFlags } from './flags.ts';
import { command, examples, listLimit, yesOrNo } from './program-parts.ts';

const EVENTS = 'kinds with commas between them, such as task.updated,deployment.*; every kind when empty';
const ID = "the webhook's id (`webhook list`)";
const SOME = '3f2a…';

export function addWebhook(program: Command, invocation: () => Invocation): void {
  const webhook = command(program, 'webhook', "Send the workspace's events to addresses of yours");
  addCreation(webhook, invocation);
  addChanges(webhook, invocation);
  addDeliveries(webhook, invocation);
}

function addCreation(webhook: Command, invocation: () => Invocation): void {
  examples(
    command(webhook, 'create', 'Make a webhook; its secret is printed alone on stdout, once')
      .argument('<url>', 'https address that takes POST')
      .option('--events <kinds>', EVENTS)
      .option('--description <text>', 'for people')
      .option('--retry', 'try a delivery that fails again, for up to 18 hours')
      .option('--inactive', 'send nothing yet'),
    'webhook create https://example.com/hooks --events task.updated > secret.txt',
    'webhook create https://example.com/hooks --retry --json',
  ).action(async (url: string, flags: WebhookCreateFlags) => {
    const { runWebhookCreate } = await import('./commands/webhook.ts');
    await runWebhookCreate(url, flags, invocation());
  });
  examples(command(webhook, 'list', 'List webhooks, and how their last delivery went'), 'webhook list').action(
    async () => {
      const { runWebhookList } = await import('./commands/webhook.ts');
      await runWebhookList(invocation());
    },
  );
}

function addChanges(webhook: Command, invocation: () => Invocation): void {
  examples(
    command(webhook, 'update', 'Change a webhook; what is not named stays')
      .argument('<id>', ID)
      .option('--to <url>', 'another address')
      .option('--events <kinds>', EVENTS)
      .option('--description <text>', 'for people')
      .option('--retry <yes|no>', 'whether a delivery that fails is tried again', yesOrNo)
      .option('--active <yes|no>', 'no: send nothing, and later nothing of that time', yesOrNo),
    `webhook update ${SOME} --events 'task.*,stub.*'`,
    `webhook update ${SOME} --active no`,
  ).action(async (id: string, flags: WebhookUpdateFlags) => {
    const { runWebhookUpdate } = await import('./commands/webhook.ts');
    await runWebhookUpdate(id, flags, invocation());
  });
  examples(
    command(webhook, 'delete', 'Delete a webhook, with the record of its deliveries').argument('<id>', ID),
    `webhook delete ${SOME}`,
  ).action(async (id: string) => {
    const { runWebhookDelete } = await import('./commands/webhook.ts');
    await runWebhookDelete(id, invocation());
  });
  examples(
    command(webhook, 'rotate', 'Print a new secret, once; the one before signs for 24 hours more').argument('<id>', ID),
    `webhook rotate ${SOME} > secret.txt`,
  ).action(async (id: string) => {
    const { runWebhookRotate } = await import('./commands/webhook.ts');
    await runWebhookRotate(id, invocation());
  });
}

function addDeliveries(webhook: Command, invocation: () => Invocation): void {
  examples(
    command(webhook, 'test', 'Send an event of the kind webhook.test, and say what came of it').argument('<id>', ID),
    `webhook test ${SOME}`,
  ).action(async (id: string) => {
    const { runWebhookTest } = await import('./commands/webhook.ts');
    await runWebhookTest(id, invocation());
  });
  examples(
    command(webhook, 'deliveries', 'List deliveries, the newest first')
      .argument('<id>', ID)
      .addOption(new Option('--state <state>', 'only these').choices(['delivered', 'failed', 'waiting']))
      .option('--limit <n>', 'how many', listLimit, 20),
    `webhook deliveries ${SOME} --state failed`,
  ).action(async (id: string, flags: WebhookDeliveriesFlags) => {
    const { runWebhookDeliveries } = await import('./commands/webhook.ts');
    await runWebhookDeliveries(id, flags, invocation());
  });
  examples(
    command(webhook, 'redeliver', 'Send the event of a delivery again, now')
      .argument('<id>', ID)
      .argument('<delivery>', "the delivery's id (`webhook deliveries`)"),
    `webhook redeliver ${SOME} 91bc…`,
  ).action(async (id: string, deliveryId: string) => {
    const { runWebhookRedeliver } = await import('./commands/webhook.ts');
    await runWebhookRedeliver(id, deliveryId, invocation());
  });
}
