// What is said of machines below a table of them: why a condition holds, in the words of whoever found it.
import { isRecord } from '#shared/json.ts';
import type { JsonObject } from '../json.ts';
import { textField } from '../json.ts';

/** One line for each machine and condition that has more to say than its name. */
export const machineNotes = (machines: readonly JsonObject[]): string[] =>
  machines.flatMap((machine) => {
    const words = machine['conditionWords'];
    return Object.entries(isRecord(words) ? words : {}).map(
      ([condition, text]) => `${textField(machine, 'id')}: ${condition}: ${String(text)}`,
    );
  });
