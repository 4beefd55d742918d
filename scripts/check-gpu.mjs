/**
 * `npm run check-gpu [image]`: on a GPU host, whether Longshore can use its GPUs: what the driver's tool says, how it is read, and a real container with one device. Exit code 0: yes; 1: a check failed;
 * 3: there is no GPU here, so that nothing was checked. The image needs `sleep`; `python:3.11-slim` when none is named.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { isNodeNewEnough, nodeBinary } from './setup/paths.mjs';

const self = fileURLToPath(import.meta.url);
if (isNodeNewEnough(process.versions.node, 24)) process.exitCode = await check(process.argv[2]);
else {
  const node = nodeBinary();
  if (node === undefined) {
    process.stderr.write('Node 24 is missing: run `npm ci` here once.\n');
    process.exitCode = 1;
  } else process.exitCode = spawnSync(node, [self, ...process.argv.slice(2)], { stdio: 'inherit' }).status ?? 1;
}

async function check(image = process.env.LONGSHORE_BASE_IMAGE?.replace('{version}', '3.11') ?? 'python:3.11-slim') {
  const { checkGpus } = await import('../agent/devices/check.ts');
  const { NvidiaSmi } = await import('../agent/devices/nvidia-smi.ts');
  const { DockerRuntime } = await import('../agent/containers/docker.ts');
  return checkGpus({
    smi: new NvidiaSmi(process.env.LONGSHORE_NVIDIA_SMI ?? 'nvidia-smi'),
    runtime: new DockerRuntime(process.env.DOCKER_HOST || undefined),
    image,
    say: (line) => process.stdout.write(`${line}\n`),
  });
}
