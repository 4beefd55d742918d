#!/usr/bin/env node
/** The `longshore` command for any Node from 20 on: runs cli/main.ts under the Node that the package pins. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { constants } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const program = join(root, 'cli', 'main.ts');
const pinned = join(root, 'node_modules', `node-linux-${process.arch}`, 'bin', 'node');

if (Number.parseInt(process.versions.node, 10) >= 24) {
  process.argv[1] = program;
  await import(pathToFileURL(program).href);
} else if (existsSync(pinned)) {
  const child = spawn(pinned, [program, ...process.argv.slice(2)], { stdio: 'inherit' });
  // On a terminal a Ctrl-C reaches the child by itself too; the commands take two at once for one.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.once('error', (error) => {
    process.stderr.write(`longshore: cannot run ${pinned}: ${error.message}\n`);
    process.exitCode = 1;
  });
  child.once('close', (code, signal) => {
    process.exitCode = code ?? 128 + (constants.signals[signal] ?? 15);
  });
} else {
  process.stderr.write(
    `longshore: Node 24 is missing (this is ${process.versions.node}). Run \`npm ci\` in ${root} once.\n`,
  );
  process.exitCode = 1;
}
