// Writes an answer exactly as its schema lists it: every field, empty ones
// too, in order, int64 as digits in a string. Compiled once per message.
import type { TObject, TSchema } from 'typebox';
import { Type } from 'typebox';
import { isBeyondDocument } from '#shared/api/fields.ts';
import { zeroOf } from './decode.ts';

type Encode = (value: unknown) => unknown;

interface SchemaFacts {
  readonly type?: string;
  readonly format?: string;
  readonly anyOf?: readonly TSchema[];
  readonly items?: TSchema;
  readonly properties?: Readonly<Record<string, TSchema>>;
}

/**
 * Compiles an encoder whose result JSON.stringify takes.
 * @param fields - `documented`: without the fields that the interface document does not have
 */
export function compileEncoder(schema: TObject, fields: Fields = 'all'): (value: unknown) => unknown {
  return encoderOf(schema, fields);
}
export type Fields = 'all' | 'documented';

function encoderOf(schema: TSchema, which: Fields): Encode {
  const facts = schema as SchemaFacts;
  if (facts.anyOf !== undefined) {
    const inner = facts.anyOf.find((member) => (member as SchemaFacts).type !== 'null');
    const encode = inner === undefined ? () => null : encoderOf(inner, which);
    return (value) => (value === null || value === undefined ? null : encode(value));
  }
  if (facts.format === 'int64' && facts.type === 'string') return (value) => int64Text(value);
  if (facts.format === 'byte') return (value) => Buffer.from((value ?? []) as Uint8Array).toString('base64');
  if (facts.type === 'array') {
    const encode = facts.items === undefined ? (item: unknown) => item : encoderOf(facts.items, which);
    return (value) => ((value ?? []) as readonly unknown[]).map(encode);
  }
  if (facts.type === 'object' && facts.properties !== undefined) return objectEncoder(facts.properties, which);
  const zero = zeroOf(schema);
  return (value) => (value === undefined || value === null ? zero() : value);
}

function objectEncoder(properties: Readonly<Record<string, TSchema>>, which: Fields): Encode {
  const shown = Object.entries(properties).filter(([, schema]) => which === 'all' || !isBeyondDocument(schema));
  const fields = shown.map(([name, schema]) => ({
    name,
    optional: Type.IsOptional(schema) && !isBeyondDocument(schema),
    encode: encoderOf(schema, which),
  }));
  return (value) => {
    const from = (value ?? {}) as Readonly<Record<string, unknown>>;
    const out: Record<string, unknown> = {};
    for (const { name, optional, encode } of fields) {
      if (optional && from[name] === undefined) continue;
      out[name] = encode(from[name]);
    }
    return out;
  };
}

function int64Text(value: unknown): string {
  if (typeof value === 'bigint') return value.toString();
  const number = typeof value === 'number' && Number.isFinite(value) ? Math.trunc(value) : 0;
  return BigInt(number).toString();
}
