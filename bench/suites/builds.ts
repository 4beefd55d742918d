// `builds`: images of a Dockerfile and of a definition, from the call to the end of its answer. The baseline is the
// engine's own builder with the same instructions. No layer of an earlier build is used on either side.
import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { tarOf } from '#agent/containers/tar.ts';
import { BASE_IMAGE, BUILD_LABEL } from '#shared/domain/built-images.ts';
import { readDefinition } from '#scheduler/fleet/builds/definition.ts';
import type { ImageRequest } from '#scheduler/fleet/builds/definition.ts';
import { objectField, textField } from '#cli/json.ts';
import { NO_IMAGE } from '../../test/helpers/image-request.ts';
import type { Figures } from '../measure.ts';
import { measureOf } from '../measure.ts';
import type { Product } from '../product.ts';
import { inTurn } from '../rounds.ts';
import type { Workplace } from '../workplace.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

const CASES = ['dockerfile', 'definition'] as const;
type Case = (typeof CASES)[number];

/** pip finds its package in the image, so that no index is measured. */
function requestOf(name: Case, image: string): ImageRequest {
  const mark = `BENCH=${randomUUID()}`;
  if (name === 'definition')
    return {
      ...NO_IMAGE,
      existingImageUri: image,
      envVars: [mark],
      pythonPackages: ['pip'],
      commands: ['mkdir /made'],
    };
  const lines = [
    `FROM ${image}`,
    `ENV ${mark}`,
    'RUN python3 -c "print(sum(range(10000000)))"',
    'RUN head -c 50000000 /dev/zero > /zeros',
    'RUN mkdir /made',
  ];
  return { ...NO_IMAGE, dockerfile: lines.join('\n') };
}

export async function builds(context: SuiteContext): Promise<SuiteResult> {
  const { place, slack } = context;
  const product = await context.product();
  try {
    // The first build makes what the machine keeps for all of them.
    await ours(product, 'dockerfile');
    const rounds = await context.runRounds(
      'builds',
      inTurn(
        () => figures((name) => baseline(place, product, name)),
        () => figures((name) => ours(product, name)),
      ),
    );
    return { measures: CASES.map((name) => measureOf('builds', name, 's', rounds, slack)), rounds };
  } finally {
    const label = [`${BUILD_LABEL}=${product.machineId}`];
    const { client } = place.engine;
    for (const { RepoTags } of await client.listImages({ filters: { label } }))
      for (const tag of (RepoTags ?? []).filter((one) => !one.includes('<none>')))
        await client.getImage(tag).remove({ force: true });
    await client.pruneImages({ filters: { label } });
  }
}

async function figures(build: (name: Case) => Promise<void>): Promise<Figures> {
  const seconds: Record<string, number> = {};
  for (const name of CASES) {
    const startedMs = performance.now();
    await build(name);
    seconds[name] = (performance.now() - startedMs) / 1000;
  }
  return seconds;
}

async function ours({ client, image }: Product, name: Case): Promise<void> {
  const last = await client.gatewayStream('/images/build', { ...requestOf(name, image) }, () => undefined);
  const result = objectField(last, 'result');
  if (result['success'] !== true) throw new Error(`an image was not built: ${textField(result, 'msg')}`);
}

async function baseline({ engine: { client } }: Workplace, { image, machineId }: Product, name: Case): Promise<void> {
  const read = readDefinition(requestOf(name, image));
  if (read.kind !== 'build') throw new Error(`the ${name} of the benchmark cannot be built`);
  const lines = read.definition.steps.map(({ text }) => text.replace(BASE_IMAGE, image));
  const context = Readable.from(tarOf([{ name: 'Dockerfile', text: lines.join('\n') }], undefined), {
    objectMode: false,
  });
  const stream = (await client.buildImage(context, {
    labels: { [BUILD_LABEL]: machineId },
    rm: true,
    forcerm: true,
  } as object)) as unknown as Readable;
  let text = '';
  for await (const part of stream) text += String(part);
  if (!text.includes('Successfully built')) throw new Error(`the engine did not build: ${text.slice(-500)}`);
}
