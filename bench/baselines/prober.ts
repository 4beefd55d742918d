// Runs inside a network namespace. For each address on a line of its input,
// prints a line as soon as a server there has answered with a first byte.
import { createInterface } from 'node:readline';
import { firstByte } from './container.ts';

const DEADLINE_MS = 120_000;

for await (const address of createInterface({ input: process.stdin })) {
  firstByte(address, performance.now() + DEADLINE_MS).then(
    () => process.stdout.write(`${address}\n`),
    () => process.exit(1),
  );
}
