// The command tree's part for models. Names, flags and help are here; the commands' module is loaded when one runs.
import { Option } from 'commander';
import type { Command } from 'commander';
import { BACKEND_DEPLOYMENT_KINDS, MODEL_TYPES } from '#shared/domain/models.ts';
import type { Invocation } from './commands/run.ts';
import type { ModelAddFlags } from './flags.ts';
import { command, examples, wholeNumber } from './program-parts.ts';

const ID = 'id of the model, as callers send it: name or org/name';

export function addModel(program: Command, invocation: () => Invocation): void {
  const model = command(program, 'model', 'Offer models behind the /v1 API that OpenAI clients speak');
  addCreation(model, invocation);
  examples(command(model, 'list', 'List models that this workspace owns'), 'model list').action(async () => {
    const { runModelList } = await import('./commands/model.ts');
    await runModelList(invocation());
  });
  examples(command(model, 'show', 'Show a model').argument('<id>', ID), 'model show acme/small-chat').action(
    async (id: string) => {
      const { runModelShow } = await import('./commands/model.ts');
      await runModelShow(id, invocation());
    },
  );
  examples(command(model, 'remove', 'Remove a model').argument('<id>', ID), 'model remove acme/small-chat').action(
    async (id: string) => {
      const { runModelRemove } = await import('./commands/model.ts');
      await runModelRemove(id, invocation());
    },
  );
}

function addCreation(model: Command, invocation: () => Invocation): void {
  examples(
    command(model, 'add', 'Add a model that a deployment or another server serves')
      .argument('<id>', ID)
      .addOption(new Option('--type <type>', 'sort of work that it does').choices([...MODEL_TYPES]))
      .option('--deployment <name>', 'a deployment of this workspace that serves it')
      .addOption(
        new Option('--kind <kind>', 'of the deployment (else asgi, or pod where only a pod has the name)').choices([
          ...BACKEND_DEPLOYMENT_KINDS,
        ]),
      )
      .option('--port <n>', 'of a pod (else its first)', wholeNumber)
      .option('--server <url>', 'another OpenAI-compatible server that serves it, as https://models.example.com/v1')
      .option('--secret <name>', 'the secret with the key of that server')
      .option('--served-name <name>', 'name of the model there (else its id)')
      .option('--context-length <tokens>', 'prompt and output together', wholeNumber)
      .option('--dimensions <n>', 'length of an embedding', wholeNumber)
      .option('--prompt-price <micros>', 'millionths of the currency for a million prompt tokens', wholeNumber)
      .option('--completion-price <micros>', 'the same for completion tokens', wholeNumber)
      .option('--request-price <micros>', 'millionths of the currency for a request', wholeNumber)
      .option('--public', 'every workspace may call it (administrators only)')
      .option('--file <file>', 'JSON with further fields, or with several backends: docs/models.md'),
    'model add acme/small-chat --type chat --deployment small-chat --context-length 8192',
    'model add big --type chat --server https://models.example.com/v1 --secret MODELS_KEY',
    'model add acme/embed --type embedding --deployment embed --dimensions 384',
  ).action(async (id: string, flags: ModelAddFlags) => {
    const { runModelAdd } = await import('./commands/model.ts');
    await runModelAdd(id, flags, invocation());
  });
}
