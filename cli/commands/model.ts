// `longshore model`: models that the workspace offers behind /v1.
import { readFile } from 'node:fs/promises';
import { exactFields } from '#shared/api/fields.ts';
import { CreateModel } from '#shared/api/rest/models.ts';
import { messageOf } from '#shared/errors.ts';
import type { Client } from '../client.ts';
import { CliError, usageError } from '../errors.ts';
import type { ModelAddFlags } from '../flags.ts';
import { listField, listWith, numberField, objectField, objectWith, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note, print, printJson } from '../print.ts';
import { EXIT } from '../exit-codes.ts';
import { deploymentsNamed } from './deployment-reference.ts';
import { secretsPath } from './secret.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

const PAGE = 1000;
/** Fields of a model that are its owner's JSON. */
const OF_USERS = exactFields(CreateModel);
const modelOf = (text: string): JsonObject => objectWith(text, OF_USERS);

const pathOf = async (client: Client, ...rest: readonly string[]): Promise<string> =>
  ['/model', await client.workspaceId(), ...rest.map(encodeURIComponent)].join('/');

const unknown =
  (id: string) =>
  (error: unknown): never => {
    if (!(error instanceof CliError) || error.answerCode !== 'model_not_found') throw error;
    throw new CliError(`this workspace has no model ${id}: \`longshore model list\` shows them`, { cause: error });
  };

export async function runModelAdd(id: string, flags: ModelAddFlags, invocation: Invocation): Promise<void> {
  const given = { ...(await fileOf(flags.file)), ...fieldsOf(flags), id };
  if (!('type' in given)) throw usageError('name the type of the model: --type chat');
  if (!('backends' in given)) throw usageError('name what serves the model: --deployment NAME, or --server URL');
  await withClient(invocation, async (client) => {
    const kind = flags.kind ?? (await kindOf(client, flags.deployment));
    const body = { ...given, ...fieldsOf(kind === undefined ? flags : { ...flags, kind }) };
    const model = await client
      .restCall('POST', await pathOf(client), body, undefined, modelOf)
      .catch((error: unknown) => {
        if (!(error instanceof CliError) || error.answerCode !== 'model_exists') throw error;
        throw new CliError(
          `there is a model ${id} already: \`longshore model show ${id}\` shows it; \`longshore model remove ${id}\` makes room for another`,
          { cause: error },
        );
      });
    showDone(invocation, model, [`added model ${id}: ${textField(model, 'type')}, served by ${backendsOf(model)}`]);
    for (const lack of await lacksOf(client, model)) note(lack);
  });
}

/** The kind of the deployment of that name; undefined: it is an application, the default, or nobody deployed it. */
async function kindOf(client: Client, name: string | undefined): Promise<'pod' | undefined> {
  // The scheduler judges the rest: a look that fails is no reason to add nothing.
  const kinds = name === undefined ? [] : await kindsNamed(client, name).catch((): readonly string[] => []);
  return kinds.includes('pod') && !kinds.includes('asgi') ? 'pod' : undefined;
}

const kindsNamed = (client: Client, name: string): Promise<readonly string[]> =>
  deploymentsNamed(client, name).then(
    (found) => [...new Set(found.filter((one) => one.name === name).map((one) => one.kind))],
    (error: unknown) => {
      if (error instanceof CliError && error.exitCode === EXIT.notFound) return [];
      throw error;
    },
  );

/** The deployments and secrets that the model's backends name, and that are not there; it may be added before them. */
async function lacksOf(client: Client, model: JsonObject): Promise<readonly string[]> {
  const checked = listField(model, 'backends').map(async (backend) =>
    textField(backend, 'kind') === 'deployment'
      ? deploymentLack(
          textField(backend, 'deployment_kind'),
          textField(backend, 'deployment'),
          await kindsNamed(client, textField(backend, 'deployment')),
        )
      : secretLack(client, textField(backend, 'secret')),
  );
  // The model is added: a failure to look is no failure of the command.
  return (await Promise.allSettled(checked)).flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
}

function deploymentLack(kind: string, name: string, kinds: readonly string[]): readonly string[] {
  if (kinds.includes(kind)) return [];
  if (kinds.includes('pod'))
    return [
      `${name} is a pod: remove the model, and add it with --kind pod (\`deployment_kind\` in a file), or calls of it get 503`,
    ];
  const other = kinds.length === 0 ? '' : ` (${kinds.join(', ')} ${name} cannot serve a model)`;
  return [`there is no ${kind}/${name} yet${other}: calls of the model get 503 until \`longshore deploy\` makes it`];
}

async function secretLack(client: Client, name: string): Promise<readonly string[]> {
  if (name === '') return [];
  const secrets = listField(await client.rest(await secretsPath(client)), 'data');
  const isThere = secrets.some((secret) => textField(secret, 'name') === name);
  return isThere
    ? []
    : [`there is no secret ${name} yet: calls of the model fail until \`longshore secret set ${name}\` makes it`];
}

async function fileOf(file: string | undefined): Promise<JsonObject> {
  if (file === undefined) return {};
  try {
    return modelOf(await readFile(file, 'utf8'));
  } catch (error) {
    throw new CliError(`cannot read ${file}: ${messageOf(error)}`, { cause: error });
  }
}

function fieldsOf(flags: ModelAddFlags): JsonObject {
  if (flags.deployment !== undefined && flags.server !== undefined) {
    throw usageError('give --deployment or --server; several backends go into --file');
  }
  const served = flags.servedName === undefined ? {} : { served_model_name: flags.servedName };
  const backend =
    flags.deployment === undefined
      ? flags.server && {
          kind: 'external',
          base_url: flags.server,
          ...(flags.secret === undefined ? {} : { secret: flags.secret }),
          ...served,
        }
      : {
          kind: 'deployment',
          deployment: flags.deployment,
          ...(flags.kind === undefined ? {} : { deployment_kind: flags.kind }),
          ...(flags.port === undefined ? {} : { port: flags.port }),
          ...served,
        };
  const { promptPrice, completionPrice, requestPrice } = flags;
  const isPriced = promptPrice !== undefined || completionPrice !== undefined || requestPrice !== undefined;
  return {
    ...(flags.type === undefined ? {} : { type: flags.type }),
    ...(flags.contextLength === undefined ? {} : { context_length: flags.contextLength }),
    ...(flags.dimensions === undefined ? {} : { embedding: { dimensions: flags.dimensions } }),
    ...(flags.public === true ? { visibility: 'public' } : {}),
    ...(backend ? { backends: [backend] } : {}),
    ...(isPriced
      ? {
          prices: {
            prompt_micros_per_million: promptPrice ?? 0,
            completion_micros_per_million: completionPrice ?? 0,
            request_micros: requestPrice ?? 0,
          },
        }
      : {}),
  };
}

const backendsOf = (model: JsonObject): string =>
  listField(model, 'backends')
    .map((backend) => {
      if (textField(backend, 'kind') === 'external') return textField(backend, 'base_url');
      const port = numberField(backend, 'port');
      return `${textField(backend, 'deployment_kind')}/${textField(backend, 'deployment')}${port > 0 ? `:${port}` : ''}`;
    })
    .join(', ');

export async function runModelList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const path = `${await pathOf(client)}?limit=${PAGE}`;
    const answer = await client.restCall('GET', path, undefined, undefined, (text) => listWith(text, OF_USERS));
    showList(
      invocation,
      listField(answer, 'data'),
      ['ID', 'TYPE', 'VISIBILITY', 'ACTIVE', 'CONTEXT', 'SERVED BY'],
      (model) => [
        textField(model, 'id'),
        textField(model, 'type'),
        textField(model, 'visibility'),
        model['active'] === true ? 'yes' : 'no',
        numberField(model, 'context_length') === 0 ? '-' : String(numberField(model, 'context_length')),
        backendsOf(model),
      ],
    );
  });
}

export async function runModelShow(id: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const model = await client
      .restCall('GET', await pathOf(client, id), undefined, undefined, modelOf)
      .catch(unknown(id));
    if (invocation.options.json === true) {
      printJson(model);
      return;
    }
    const prices = objectField(model, 'prices');
    const rows = [
      ['id', textField(model, 'id')],
      ['type', textField(model, 'type')],
      ['visibility', textField(model, 'visibility')],
      ['active', model['active'] === true ? 'yes' : 'no'],
      ['owned by', textField(model, 'owned_by')],
      ['context', String(numberField(model, 'context_length') || 'not known')],
      ['served by', backendsOf(model)],
      [
        'prices',
        `${numberField(prices, 'prompt_micros_per_million')} + ${numberField(prices, 'completion_micros_per_million')} micros per million tokens, ${numberField(prices, 'request_micros')} per request`,
      ],
      ['description', textField(model, 'description')],
    ] as const;
    for (const [name, value] of rows) if (value !== '') print(`${`${name}:`.padEnd(13)}${value}`);
  });
}

export async function runModelRemove(id: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    await client.restCall('DELETE', await pathOf(client, id)).catch(unknown(id));
    showDone(invocation, { id, done: 'removed' }, [`removed model ${id}`]);
  });
}
