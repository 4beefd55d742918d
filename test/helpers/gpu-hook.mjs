// The stand-in for NVIDIA's container hook, which the engine's runtime calls before a container with devices starts.
// The hook puts an `nvidia-smi` into the container that lists the passed devices. Devices that the host does not have
// are refused in the real hook's words. A probe of ours also gets the stand-in for the driver's library, with that
// device's behaviour. Arguments: the library, and a JSON file with the outcome of CUDA by UUID, or `refused`.
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const { bundle } = JSON.parse(readFileSync(0, 'utf8'));
const config = JSON.parse(readFileSync(join(bundle, 'config.json'), 'utf8'));
const prefix = 'NVIDIA_VISIBLE_DEVICES=';
// The engine's own variable comes last, as in the environment of the real hook.
const wanted = (config.process.env.findLast((one) => one.startsWith(prefix)) ?? '').slice(prefix.length).split(',');
const [library, modes] = process.argv.slice(2);
const does = existsSync(modes) ? JSON.parse(readFileSync(modes, 'utf8')) : {};
const dead = wanted.find((uuid) => does[uuid] === 'refused');
if (dead !== undefined) {
  process.stderr.write(`nvidia-container-cli: device error: ${dead}: unknown device\n`);
  process.exit(1);
}
const lines = wanted.map((uuid, index) => `GPU ${index}: NVIDIA H100 80GB HBM3 (UUID: ${uuid})`);
const tool = join(config.root.path, 'usr/bin/nvidia-smi');
writeFileSync(tool, `#!/bin/sh\ncat <<END\n${lines.join('\n')}\nEND\n`);
chmodSync(tool, 0o777);

// This program marks a probe of ours.
if (existsSync(join(config.root.path, 'usr/bin/longshore-gpu-probe'))) {
  mkdirSync(join(config.root.path, 'usr/lib64'), { recursive: true });
  copyFileSync(library, join(config.root.path, 'usr/lib64/libcuda.so.1'));
  writeFileSync(join(config.root.path, 'etc/fake-cuda'), does[wanted[0]] ?? '');
}
