/** Puts work into the order of its time, on the disk where there is much of it. */
import { once } from 'node:events';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** Pieces of work that are in memory at once. */
const AT_ONCE = 200_000;

/**
 * @template {{ at: number }} Work
 * @param {AsyncIterable<Work>} works
 * @param {number} [atOnce]
 * @returns {AsyncGenerator<Work>} the oldest first; of the same age as they came
 */
export async function* inOrder(works, atOnce = AT_ONCE) {
  let held = [];
  const runs = [];
  let directory;
  try {
    for await (const work of works) {
      held.push(work);
      if (held.length < atOnce) continue;
      directory ??= await mkdtemp(join(tmpdir(), 'longshore-trace-'));
      runs.push(await written(join(directory, `run-${runs.length}`), sorted(held)));
      held = [];
    }
    yield* merged([...runs.map(readBack), sorted(held)]);
  } finally {
    if (directory !== undefined) await rm(directory, { recursive: true, force: true });
  }
}

const sorted = (works) => works.toSorted((a, b) => a.at - b.at);

async function written(path, works) {
  const stream = createWriteStream(path);
  for (const work of works) if (!stream.write(`${JSON.stringify(work)}\n`)) await once(stream, 'drain');
  stream.end();
  await once(stream, 'close');
  return path;
}

async function* readBack(path) {
  for await (const line of createInterface({ input: createReadStream(path) })) yield JSON.parse(line);
}

/** Joins lists that are in order. */
async function* merged(lists) {
  const open = [];
  for (const list of lists) {
    const iterator = list[Symbol.asyncIterator]?.() ?? list[Symbol.iterator]();
    const { value, done } = await iterator.next();
    if (done !== true) open.push({ iterator, value });
  }
  while (open.length > 0) {
    let first = 0;
    for (let index = 1; index < open.length; index += 1) if (open[index].value.at < open[first].value.at) first = index;
    const { iterator, value } = open[first];
    yield value;
    const next = await iterator.next();
    if (next.done === true) open.splice(first, 1);
    else open[first].value = next.value;
  }
}
