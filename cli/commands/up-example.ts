// The end of `npm start`: the example is deployed in the ordinary way and called once, and
// its answer is shown. A second start finds the deployment of the first and calls that.
import { repeat } from '#shared/backoff.ts';
import { CONDITIONS } from '#shared/domain/conditions.ts';
import { Client } from '../client.ts';
import { failureText, invoke, invokePath, readInput } from './invoke.ts';
import { machineNotes } from './machine-notes.ts';
import type { Context } from '../context.ts';
import { deployApp } from '../deploy/deploy.ts';
import { CliError } from '../errors.ts';
import { listField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';

const LOOK_EVERY_MS = 1_000;

/** No machine of the installation can start a container, and waiting changes nothing. */
export class NoMachineStarts extends CliError {}

/** The first call waits for a container on a machine that may still have to unpack an image. */
const INVOKE_TIMEOUT_MS = 240_000;

export interface ExampleAnswer {
  readonly name: string;
  readonly url: string;
  readonly version: number;
  readonly answer: string;
  readonly milliseconds: number;
}

/** @throws CliError when it cannot be deployed, or answers with an error */
export async function runExample(
  context: Context,
  example: { readonly target: string; readonly data: string },
  env: Readonly<Record<string, string | undefined>>,
  onStep: (line: string) => void,
): Promise<ExampleAnswer> {
  const body = await readInput(example.data);
  const client = new Client(context);
  try {
    const deployed = await deployApp(client, { target: example.target, name: undefined, reuse: true, onStep, env });
    onStep(
      deployed.reused
        ? `${deployed.name} is deployed already (version ${deployed.version})`
        : `${deployed.name} is deployed (version ${deployed.version})`,
    );
    onStep(`calling ${deployed.name} ...`);
    const startedMs = performance.now();
    const path = invokePath(deployed.kind, deployed.name, deployed.version);
    const answer = await unlessNoMachineStarts(client, () =>
      invoke(client, { path, body, timeoutMs: INVOKE_TIMEOUT_MS }),
    );
    if (answer.status >= 300) {
      throw new CliError(`${deployed.name} answered ${answer.status}: ${failureText(answer)}`);
    }
    return {
      name: deployed.name,
      url: deployed.url,
      version: deployed.version,
      answer: answer.body.toString('utf8'),
      milliseconds: Math.round(performance.now() - startedMs),
    };
  } finally {
    await client.close();
  }
}

/** @throws NoMachineStarts as soon as every machine says that its engine starts no container */
async function unlessNoMachineStarts<T>(client: Client, work: () => Promise<T>): Promise<T> {
  const over = new AbortController();
  const noneStarts = Promise.withResolvers<never>();
  const looking = repeat(
    LOOK_EVERY_MS,
    over.signal,
    async () => {
      const machines = listField(await client.gateway('GET', '/machines'), 'machines');
      const isStuck = (machine: JsonObject): boolean => textsField(machine, 'conditions').includes('EngineCannotStart');
      if (machines.length > 0 && machines.every(isStuck))
        noneStarts.reject(
          new NoMachineStarts(
            `${CONDITIONS.EngineCannotStart.says}. ${machineNotes(machines).join('; ')}\nMend the engine (often a runc that does not fit its dockerd; \`docker run --rm hello-world\` shows the same), then start again.`,
          ),
        );
    },
    () => undefined,
  );
  try {
    return await Promise.race([work(), noneStarts.promise]);
  } finally {
    over.abort();
    await looking;
  }
}
