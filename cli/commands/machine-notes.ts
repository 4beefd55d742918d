// Notes printed below a table of machines: the reason of each condition, in the words of the agent that found it.
import { isRecord } from '#shared/json.ts';
import type { JsonObject } from '../json.ts';
import { textField } from '../json.ts';

/** A line for each condition that has more to say than its name. */
export const machineNotes = (machines: readonly JsonObject[]): string[] =>
  machines.flatMap((machine) => {
    const words = machine['conditionWords'];
    return Object.entries(isRecord(words) ? words : {}).map(
      ([condition, text]) => `${textField(machine, 'id')}: ${condition}: ${String(text)}`,
    );
  });
