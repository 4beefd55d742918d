// The command tree's part for what programs of a workspace share: maps and queues. Names, flags and help are here; each
// command's module is loaded when it runs.
import { InvalidArgumentError } from 'commander';
import type { Command } from 'commander';
import { MAX_LIFE_SECONDS } from '#shared/domain/shared-life.ts';
import type { Invocation } from './commands/run.ts';
import type { ClearFlags, MapShowFlags, TtlFlags } from './flags.ts';
import { command, examples, listLimit, wholeNumber } from './program-parts.ts';

const MAP = 'as `map list` shows it';
const QUEUE = 'as `queue list` shows it';
const VALUE = 'JSON, @FILE with it, or - for stdin';
const TTL = ['--ttl <seconds>', 'how long it stays (else seven days)', lifeSeconds] as const;
const YES = ['--yes', 'delete them without a question'] as const;

/** @throws InvalidArgumentError, which names the flag */
function lifeSeconds(text: string): number {
  const seconds = wholeNumber(text);
  if (seconds < 1 || seconds > MAX_LIFE_SECONDS)
    throw new InvalidArgumentError(`must be a whole number from 1 to ${MAX_LIFE_SECONDS}.`);
  return seconds;
}

export function addMap(program: Command, invocation: () => Invocation): void {
  const map = command(program, 'map', 'Look at the maps that programs share, and change their entries');
  examples(command(map, 'list', 'List maps that have entries'), 'map list').action(async () => {
    const { runMapList } = await import('./commands/map.ts');
    await runMapList(invocation());
  });
  examples(
    command(map, 'show', 'Show the keys of a map, in their order')
      .argument('<name>', MAP)
      .option('--after <key>', 'begin behind this key')
      .option('--limit <n>', 'how many', listLimit, 100),
    'map show seen',
    'map show seen --after page-100 --limit 1000',
  ).action(async (name: string, flags: MapShowFlags) => {
    const { runMapShow } = await import('./commands/map.ts');
    await runMapShow(name, flags, invocation());
  });
  examples(
    command(map, 'get', 'Print the value of a key').argument('<name>', MAP).argument('<key>', 'a key of it'),
    'map get seen a',
    'map get models best > best.pickle',
  ).action(async (name: string, key: string) => {
    const { runMapGet } = await import('./commands/map.ts');
    await runMapGet(name, key, invocation());
  });
  examples(
    command(map, 'set', 'Set the value of a key')
      .argument('<name>', 'a new name makes a map')
      .argument('<key>', 'a key of it')
      .argument('<value>', VALUE)
      .option(...TTL),
    'map set seen a \'{"count": 1}\'',
    'map set seen b @value.json --ttl 3600',
  ).action(async (name: string, key: string, value: string, flags: TtlFlags) => {
    const { runMapSet } = await import('./commands/map.ts');
    await runMapSet(name, key, value, flags, invocation());
  });
  examples(
    command(map, 'delete', 'Delete a key').argument('<name>', MAP).argument('<key>', 'a key of it'),
    'map delete seen a',
  ).action(async (name: string, key: string) => {
    const { runMapDelete } = await import('./commands/map.ts');
    await runMapDelete(name, key, invocation());
  });
  examples(
    command(map, 'clear', 'Delete all entries of a map')
      .argument('<name>', MAP)
      .option(...YES),
    'map clear seen --yes',
  ).action(async (name: string, flags: ClearFlags) => {
    const { runMapClear } = await import('./commands/map.ts');
    await runMapClear(name, flags, invocation());
  });
}

export function addQueue(program: Command, invocation: () => Invocation): void {
  const queue = command(program, 'queue', 'Look at the queues that programs share, and change their items');
  examples(command(queue, 'list', 'List queues that have items'), 'queue list').action(async () => {
    const { runQueueList } = await import('./commands/queue.ts');
    await runQueueList(invocation());
  });
  examples(
    command(queue, 'show', 'Show the size of a queue, and what its oldest item is').argument('<name>', QUEUE),
    'queue show pages',
  ).action(async (name: string) => {
    const { runQueueShow } = await import('./commands/queue.ts');
    await runQueueShow(name, invocation());
  });
  examples(
    command(queue, 'peek', 'Print the oldest item, which stays').argument('<name>', QUEUE),
    'queue peek pages',
  ).action(async (name: string) => {
    const { runQueuePeek } = await import('./commands/queue.ts');
    await runQueuePeek(name, invocation());
  });
  examples(
    command(queue, 'put', 'Add an item at the end of a queue')
      .argument('<name>', 'a new name makes a queue')
      .argument('<value>', VALUE)
      .option(...TTL),
    'queue put pages \'{"page": "/"}\'',
    'queue put pages @page.json',
  ).action(async (name: string, value: string, flags: TtlFlags) => {
    const { runQueuePut } = await import('./commands/queue.ts');
    await runQueuePut(name, value, flags, invocation());
  });
  examples(
    command(queue, 'pop', 'Take the oldest item, and print it').argument('<name>', QUEUE),
    'queue pop pages',
  ).action(async (name: string) => {
    const { runQueuePop } = await import('./commands/queue.ts');
    await runQueuePop(name, invocation());
  });
  examples(
    command(queue, 'clear', 'Delete all items of a queue')
      .argument('<name>', QUEUE)
      .option(...YES),
    'queue clear pages --yes',
  ).action(async (name: string, flags: ClearFlags) => {
    const { runQueueClear } = await import('./commands/queue.ts');
    await runQueueClear(name, flags, invocation());
  });
}
