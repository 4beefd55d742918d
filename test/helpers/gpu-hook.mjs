// The stand-in for NVIDIA's container hook: called by the engine's runtime before a container with devices starts, it puts an `nvidia-smi` into it that lists what the engine passes, and refuses what the host does
// not have (a UUID with `dead` in it), in the real one's words.
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const { bundle } = JSON.parse(readFileSync(0, 'utf8'));
const config = JSON.parse(readFileSync(join(bundle, 'config.json'), 'utf8'));
const prefix = 'NVIDIA_VISIBLE_DEVICES=';
// The engine's own comes last, as in the environment of the real hook.
const wanted = (config.process.env.findLast((one) => one.startsWith(prefix)) ?? '').slice(prefix.length).split(',');
const dead = wanted.find((uuid) => uuid.includes('dead'));
if (dead !== undefined) {
  process.stderr.write(`nvidia-container-cli: device error: ${dead}: unknown device\n`);
  process.exit(1);
}
const lines = wanted.map((uuid, index) => `GPU ${index}: NVIDIA H100 80GB HBM3 (UUID: ${uuid})`);
const tool = join(config.root.path, 'usr/bin/nvidia-smi');
writeFileSync(tool, `#!/bin/sh\ncat <<END\n${lines.join('\n')}\nEND\n`);
chmodSync(tool, 0o777);
