// The output of a living container is followed for as long as it lives, however often the engine's stream of it breaks.
import { describe, expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import { ContainerOutput } from '#agent/reconcile/output.ts';
import type { OutputParts } from '#agent/reconcile/output.ts';

/** Ends a stream of the engine: complete, or broken with an error. */
type End = (error?: Error) => void;

interface Stream {
  readonly since: string;
  say(line: string, position: string): void;
  readonly end: End;
}

interface World {
  readonly output: ContainerOutput;
  readonly lines: string[];
  readonly streams: readonly Stream[];
  /** The container has ended. */
  over: boolean;
  /** The stream of that number, once it was asked for. */
  stream(number: number): Promise<Stream>;
}

function aWorld(): World {
  const lines: string[] = [];
  const streams: Stream[] = [];
  const waiting: (() => void)[] = [];
  const followLogs: OutputParts['runtime']['followLogs'] = (_dockerId, since, onLine, signal) =>
    new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => resolve());
      const say = (line: string, position: string): void => onLine('stdout', line, position);
      const end: End = (error) => (error === undefined ? resolve() : reject(error));
      streams.push({ since, say, end });
      for (const wake of waiting.splice(0)) wake();
    });
  const world: World = {
    lines,
    streams,
    over: false,
    output: new ContainerOutput({
      runtime: { followLogs },
      logs: { add: (_containerId, { line, taskId }) => void lines.push(`${taskId}${line ?? ''}`) },
      positions: { follow: () => undefined, forget: () => undefined, resumeAt: () => undefined },
      agentState: { isOver: () => world.over },
      log: createLog({ name: 'test', level: 'silent' }),
      endMs: 20,
    }),
    stream: async (number) => {
      while (streams[number - 1] === undefined) await new Promise<void>((wake) => waiting.push(wake));
      return streams[number - 1] as Stream;
    },
  };
  world.output.follow('c', 'docker-c', 'start');
  return world;
}

test('a line that the first process marked with its task is the line of that task, and no other is', async () => {
  const world = aWorld();
  const stream = await world.stream(1);
  const said = [
    '\0task t-1\0its line',
    '\0task t-2\0',
    '\0task \0none',
    '\0task t 3\0none',
    'in \0task t-4\0it',
    '\0task t-5',
  ];
  for (const [at, line] of said.entries()) stream.say(line, `T${at}`);
  expect(world.lines).toEqual(['t-1its line', 't-2', ...said.slice(2)]);
});

test('a stream that breaks under a living container is followed again from its last line', async () => {
  const world = aWorld();
  const first = await world.stream(1);
  expect(first.since).toBe('');
  first.say('one', 'T1');
  first.say('two', 'T2');
  first.end(new Error('the engine went away'));
  const second = await world.stream(2);
  expect(second.since).toBe('T2');
  second.say('three', 'T3');
  // An engine that is stopped in order ends its streams as if they were whole.
  second.end();
  const third = await world.stream(3);
  expect(third.since).toBe('T3');
  third.say('four', 'T4');
  expect(world.lines).toEqual(['one', 'two', 'three', 'four']);
  await world.output.close();
  expect(world.streams).toHaveLength(3);
});

test('the output of a container that ends is whole at once, and not asked for again', async () => {
  const world = aWorld();
  const first = await world.stream(1);
  first.say('last words', 'T1');
  // The stream ends first, then the report that the container has ended.
  first.end();
  await Promise.resolve();
  world.over = true;
  await world.output.awaitEnd('c', 60_000);
  world.output.forget('c');
  expect(world.lines).toEqual(['last words']);
  expect(world.streams).toHaveLength(1);
});

test('a container that ends while its stream is broken: the rest is asked for before it is removed', async () => {
  const world = aWorld();
  const first = await world.stream(1);
  first.say('before', 'T1');
  first.end(new Error('the engine went away'));
  world.over = true;
  const settled = world.output.awaitEnd('c', 60_000);
  const second = await world.stream(2);
  second.say('last words', 'T2');
  second.end();
  await settled;
  expect(world.lines).toEqual(['before', 'last words']);
  expect(world.streams).toHaveLength(2);
});

describe('what has to be done before the first line', () => {
  const many = Array.from({ length: 40 }, (_, at) => `c${at}`);

  test('is done for few at a time, and again when it fails; then lines come', async () => {
    const world = aWorld();
    let under = 0;
    let most = 0;
    let tries = 0;
    for (const id of many)
      world.output.follow(id, id, 'resume', async () => {
        under += 1;
        most = Math.max(most, under);
        await new Promise((resolve) => setImmediate(resolve));
        under -= 1;
        tries += 1;
        if (tries === 1) throw new Error('the engine is busy');
      });
    await Promise.all(many.map((id) => world.output.opened(id)));
    expect({ most, tries }).toEqual({ most: 4, tries: many.length + 1 });
    await world.stream(1 + many.length);
    await world.output.close();
  });

  test('is not done for what nobody wants any more, and holds nobody up', async () => {
    const world = aWorld();
    const asked: AbortSignal[] = [];
    for (const id of many)
      world.output.follow(id, id, 'resume', (ends) => {
        asked.push(ends);
        return new Promise(() => undefined);
      });
    await world.stream(1);
    world.output.forget('c0');
    expect(asked[0]?.aborted).toBe(true);
    await world.output.close();
    expect(asked).toHaveLength(4);
    expect(world.streams).toHaveLength(1);
  });
});
