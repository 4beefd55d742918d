// The container engine behind our port: a file for each kind of object, put together here.
import type { ContainerRuntime } from '../runtime.ts';
import { EngineClient } from './client.ts';
import type { OnEngineCall } from './client.ts';
import { buildCalls } from './builds.ts';
import { containerCalls } from './containers.ts';
import type { ContainerCalls } from './containers.ts';
import { imageCalls } from './images.ts';
import { engineFacts } from './info.ts';
import type { EngineFacts } from './info.ts';
import { networkCalls } from './networks.ts';
import { outputCalls } from './output.ts';
import { runCalls } from './runs.ts';
import { volumeCalls } from './volumes.ts';

export type DockerRuntime = ContainerRuntime &
  Pick<ContainerCalls, 'gpuContainers'> &
  Pick<EngineFacts, 'registrySettings'>;

/** @param host - address of the engine; undefined: the usual socket */
export function dockerRuntime(host: string | undefined, onCall: OnEngineCall = () => undefined): DockerRuntime {
  const engine = new EngineClient(host, onCall);
  const facts = engineFacts(engine);
  const containers = containerCalls(engine, facts);
  const output = outputCalls(engine);
  return {
    ping: facts.ping,
    info: facts.info,
    registrySettings: facts.registrySettings,
    ...containers,
    ...output,
    ...runCalls(engine, containers, output),
    ...volumeCalls(engine),
    ...imageCalls(engine),
    ...buildCalls(engine),
    ...networkCalls(engine),
  };
}
