// The size of a machine as commands show it: the most that its containers may have together. Refusals name the same
// figure. A machine that never joined offers nothing.
import { coresOf, memoryOf } from '../format.ts';
import { numberField, objectField } from '../json.ts';
import type { JsonObject } from '../json.ts';

export const offeredCores = (machine: JsonObject): string =>
  coresOf(numberField(objectField(machine, 'offered'), 'cpu'));
export const offeredMemory = (machine: JsonObject): string =>
  memoryOf(numberField(objectField(machine, 'offered'), 'memory'));

/** The hardware; empty: the machine never joined. */
export function hardwareText(machine: JsonObject): string {
  if (numberField(machine, 'cpu') === 0) return '';
  const has = `${coresOf(numberField(machine, 'cpu'))} cores, ${memoryOf(numberField(machine, 'memory'))}`;
  return `${has}; a part is kept for the host, and the pool's cpu_overcommit multiplies the cores`;
}
