// Memory nodes of the host that containers without a GPU may use.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** No kernel has more nodes. */
const MOST = 1024;

/**
 * The nodes that have processors and memory, for an engine; undefined: all that have memory, as on ordinary hosts.
 * GH200 and GB200 bring memory of their GPUs online as nodes without processors.
 * @param root - of /sys; tests name a tree of files
 */
export async function readMemoryNodes(root = '/'): Promise<string | undefined> {
  const [cpus, memory] = await Promise.all(
    ['has_cpu', 'has_memory'].map(async (name) => {
      const path = join(root, 'sys/devices/system/node', name);
      return nodesOf(await readFile(path, 'utf8').catch(() => ''));
    }),
  );
  const both = memory?.filter((node) => cpus?.includes(node) === true) ?? [];
  return both.length === 0 || both.length === memory?.length ? undefined : both.join(',');
}

/** Numbers of a list such as `0-2,10`; empty: it is none. */
function nodesOf(text: string): readonly number[] {
  const nodes: number[] = [];
  for (const part of text.trim().split(',')) {
    const [, from, to = from] = /^(\d{1,4})(?:-(\d{1,4}))?$/.exec(part) ?? [];
    if (from === undefined || Number(to) >= MOST) return [];
    for (let node = Number(from); node <= Number(to); node += 1) nodes.push(node);
  }
  return nodes;
}
