// The direct side of `streams`: a container that serves the same ASGI application by uvicorn, with the extras that
// people install for speed. Limits, hardening and network are those of the agent's containers. Callers connect to the
// container's own address: nothing is in between.
import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { createOptions } from '#agent/containers/engine/options.ts';
import { pipImage } from '../../test/helpers/pip-image.ts';
import { waitFor } from '../../test/helpers/programs.ts';
import { BENCH_LABEL } from '../engine.ts';
import type { BenchEngine } from '../engine.ts';
import type { ContainerBaseline } from './container.ts';

const PACKAGES = 'uvicorn==0.34.0 uvloop==0.21.0 httptools==0.6.4 websockets==14.1';
const APP = fileURLToPath(new URL('../apps/streams', import.meta.url));
const PORT = 8000;
const UP_MS = 30_000;

/** Starts the server. The workplace removes its container. @returns the URL of the application */
export async function startAsgiServer(engine: BenchEngine, spec: ContainerBaseline): Promise<string> {
  const { client, runId } = engine;
  const image = await pipImage({
    client,
    baseImage: spec.image,
    repository: 'longshore-bench-asgi',
    packages: PACKAGES,
    label: [BENCH_LABEL, runId],
  });
  const container = await client.createContainer(
    createOptions({
      name: `${runId}-${randomBytes(6).toString('hex')}`,
      image,
      entrypoint: ['uvicorn', 'web:web', '--host', '0.0.0.0', '--port', String(PORT), '--no-access-log'],
      workingDir: '/srv',
      env: ['PYTHONUNBUFFERED=1', 'PYTHONDONTWRITEBYTECODE=1'],
      labels: { [BENCH_LABEL]: runId },
      mounts: [{ kind: 'bind', source: APP, target: '/srv', readOnly: true }],
      network: spec.network,
      memoryBytes: spec.memoryBytes,
      cpuMillicores: spec.cpuMillicores,
    }),
  );
  engine.known.add(container.id);
  await container.start();
  const { NetworkSettings } = await container.inspect();
  const address = NetworkSettings.Networks[spec.network]?.IPAddress ?? '';
  const url = `http://${address}:${PORT}`;
  const answers = async (): Promise<boolean> => {
    try {
      return (await fetch(`${url}/small`)).ok;
    } catch {
      return false;
    }
  };
  await waitFor(answers, 'uvicorn answers', UP_MS);
  return url;
}
