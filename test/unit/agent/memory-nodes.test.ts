// Memory nodes of hosts, read from trees as /sys shows them.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readMemoryNodes } from '../../../agent/containers/engine/memory-nodes.ts';
import { tempDirectory } from '../../helpers/services.ts';

function aHost(files: Readonly<Record<string, string>>): string {
  const made = tempDirectory('nodes');
  onTestFinished(() => made.remove());
  const at = join(made.path, 'sys/devices/system/node');
  mkdirSync(at, { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(at, name), text);
  return made.path;
}

test.for([
  // The HBM of its GPU is node 1; nodes for MIG slices hold nothing.
  ['a GH200', { online: '0-8\n', has_cpu: '0\n', has_memory: '0-1\n' }, '0'],
  ['a GB200 with two processors', { online: '0-33\n', has_cpu: '0-1\n', has_memory: '0-2,10,18,26\n' }, '0,1'],
  ['an ordinary host', { online: '0-1\n', has_cpu: '0-1\n', has_memory: '0-1\n' }, undefined],
  ['a host with a node of processors alone', { has_cpu: '0-1\n', has_memory: '0\n' }, undefined],
  ['a host that does not say', {}, undefined],
  ['a host whose words are no list', { has_cpu: '\n', has_memory: '0,x\n' }, undefined],
  ['a host with no node that has both', { has_cpu: '0\n', has_memory: '1\n' }, undefined],
  ['a host with an endless list', { has_cpu: '0\n', has_memory: '0-99999999999\n' }, undefined],
] as const)('%s', async ([, files, nodes]) => expect(await readMemoryNodes(aHost(files))).toBe(nodes));
