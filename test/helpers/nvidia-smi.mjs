// The stand-in for NVIDIA's tool, which answers as the real one does by the JSON file named by its first argument
// (nvidia-smi-answers.mjs). Plain JavaScript, so that it starts fast.
import { readFileSync } from 'node:fs';
import { answer } from './nvidia-smi-answers.mjs';

const [path, ...args] = process.argv.slice(2);
const end = answer(JSON.parse(readFileSync(path, 'utf8')), args);
if (end === undefined) {
  // A grandchild hangs, too: a caller that gives up must end the whole group.
  setInterval(() => undefined, 1000);
} else {
  process.stdout.write(end.stdout);
  process.stderr.write(end.stderr);
  process.exitCode = end.exitCode;
}
