/** A row of the tables of the gateway's operations, and what several tables say. */
import { expect } from 'vitest';
import type { Json } from '../verbs-fixture.ts';
import { refusedWith } from '../verbs-kit.ts';
import type { Verb } from '../verbs-kit.ts';

export interface Failure {
  readonly line?: (id: string) => string;
  readonly body?: (id: string) => unknown;
  /** Absent: the verb's own `make`. */
  readonly make?: () => Promise<string>;
  readonly token?: () => string;
  readonly answer: Json;
}

export interface GatewayVerb extends Verb {
  /** The fields of its answer. */
  readonly fields: string;
  /** Fields of the records in the answer, by the answer's field. */
  readonly records?: Readonly<Record<string, string>>;
  /** The answer to a restricted token; absent: the token may call. */
  readonly restricted?: Json;
  /** The answer to a container's credential; absent: that of a restricted token, or a refusal. */
  readonly container?: Json;
  /** Fields of the body that are int64. */
  readonly int64?: readonly string[];
  readonly failures?: Readonly<Record<string, Failure>>;
  /** True for an operation beside the 31 of the interface. */
  readonly ours?: true;
}

export const UNAUTHORIZED = refusedWith('Unauthorized Access');

/** Checks that every record of the answer has these fields and no others, as the interface lists them. */
export function hasFields(json: Json, verb: Pick<GatewayVerb, 'fields' | 'records'>): void {
  expect(Object.keys(json).toSorted()).toEqual(verb.fields.split(' ').toSorted());
  for (const [field, names] of Object.entries(verb.records ?? {})) {
    const value = json[field];
    const records = (Array.isArray(value) ? value : [value]) as (Json | null)[];
    for (const record of records) {
      if (record !== null) expect(Object.keys(record).toSorted()).toEqual(names.split(' ').toSorted());
    }
  }
}
