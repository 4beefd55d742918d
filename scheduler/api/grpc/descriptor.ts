// Reads the table of fields, and makes codecs of messages from it. Loaded with the first connection, because making
// them takes tens of milliseconds.
import type { MethodDefinition, ServiceDefinition } from '@grpc/proto-loader';
import { fromJSON } from '@grpc/proto-loader';
import { SERVICES } from './services/index.ts';

export interface Field {
  /** As on the wire, `err_msg`. */
  readonly name: string;
  /** As in answers of operations, `errMsg`. */
  readonly camel: string;
  readonly number: number;
  /** A scalar's name, `time`, or `package.Message`. */
  readonly type: string;
  /** Type of the keys, where the field is a map. */
  readonly keys: string | undefined;
  readonly isList: boolean;
  readonly isOptional: boolean;
}

export type Messages = ReadonlyMap<string, readonly Field[]>;

const camelOf = (name: string): string => name.replace(/_([a-z0-9])/g, (_all, letter: string) => letter.toUpperCase());
const isMessage = (type: string): boolean => /[A-Z]/.test(type);

/** All messages by `package.Message`. */
export function readMessages(): Messages {
  const texts = SERVICES.flatMap(({ pack, messages }) =>
    Object.entries(messages).map(([name, text]) => ({ pack, name, text })),
  );
  return new Map(texts.map(({ pack, name, text }) => [`${pack}.${name}`, readFields(pack, text)]));
}

function readFields(pack: string, text: string): readonly Field[] {
  const entries = text.split(';').map((entry) => entry.trim());
  return entries.filter((entry) => entry !== '').map((entry) => readField(pack, entry));
}

function readField(pack: string, entry: string): Field {
  const [name = '', number = '', said = 'string'] = entry.split(' ');
  const [, keys, values] = /^map<(\w+),([\w.]+)>$/.exec(said) ?? [];
  const isList = said.endsWith('[]');
  const isOptional = said.endsWith('?');
  const plain = values ?? said.replace(/\[\]$|\?$/, '');
  const type = isMessage(plain) && !plain.includes('.') ? `${pack}.${plain}` : plain;
  return { name, camel: camelOf(name), number: Number(number), type, keys, isList, isOptional };
}

/** Messages of the codecs, and of one service whose calls name them in pairs, as protobufjs describes them. */
function describe(messages: Messages) {
  const packages: Record<string, { nested: Record<string, unknown> }> = {};
  for (const [name, fields] of messages) {
    const [pack = '', message = ''] = name.split('.');
    (packages[pack] ??= { nested: {} }).nested[message] = describeMessage(fields);
  }
  const methods = [...messages.keys()].map((name) => [name, { requestType: name, responseType: name }]);
  const wire = { nested: { Codecs: { methods: Object.fromEntries(methods) } } };
  const google = { nested: { protobuf: { nested: { Timestamp: TIMESTAMP } } } };
  return { nested: { ...packages, wire, google } };
}

/** An enumeration comes as its number. */
const WIRE_TYPES: Readonly<Record<string, string>> = { time: 'google.protobuf.Timestamp', enum: 'int32' };

const TIMESTAMP = { fields: { seconds: { type: 'int64', id: 1 }, nanos: { type: 'int32', id: 2 } } };

function describeMessage(fields: readonly Field[]) {
  const optional = fields.filter(({ isOptional }) => isOptional);
  return {
    oneofs: Object.fromEntries(optional.map(({ name }) => [`_${name}`, { oneof: [name] }])),
    fields: Object.fromEntries(
      fields.map(({ name, number, type, keys, isList, isOptional }) => [
        name,
        {
          id: number,
          type: WIRE_TYPES[type] ?? type,
          ...(keys === undefined ? {} : { keyType: keys }),
          ...(isList ? { rule: 'repeated' } : {}),
          ...(isOptional ? { options: { proto3_optional: true } } : {}),
        },
      ]),
    ),
  };
}

export type Plain = Readonly<Record<string, unknown>>;

/** Reads and writes the bytes of messages. */
export interface Codecs {
  /**
   * The message with every field that the table names, by names of the wire: int64 as digits, bytes as base64, zeroes
   * where nothing was sent. @throws Error when the bytes are no such message
   */
  decode(message: string, bytes: Buffer): Plain;
  /** @param answer - by names of operations; times as RFC 3339, bytes as base64; other fields are left out */
  encode(message: string, answer: Plain): Buffer;
}

export function makeCodecs(messages: Messages = readMessages()): Codecs {
  const definition = fromJSON(describe(messages), {
    keepCase: true,
    longs: String,
    bytes: String,
    defaults: true,
    arrays: true,
    objects: true,
  });
  const service = definition['wire.Codecs'] as ServiceDefinition;
  const codecOf = (name: string): MethodDefinition<object, object> => {
    const method = service[name];
    if (method === undefined) throw new Error(`the table of fields has no message ${name}`);
    return method;
  };
  return {
    decode: (name, bytes) => codecOf(name).requestDeserialize(bytes) as Plain,
    encode: (name, answer) => codecOf(name).responseSerialize(wireForm(messages, name, answer)),
  };
}

/** The answer by names and values of the wire. */
function wireForm(messages: Messages, name: string, answer: Plain): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const field of messages.get(name) ?? []) {
    const value = answer[field.camel];
    if (value === undefined || value === null) continue;
    out[field.name] = fieldForm(messages, field, value);
  }
  return out;
}

function fieldForm(messages: Messages, field: Field, value: unknown): unknown {
  if (field.isList) return (value as readonly unknown[]).map((item) => itemForm(messages, field.type, item));
  if (field.keys === undefined) return itemForm(messages, field.type, value);
  const entries = Object.entries(value as Plain);
  return Object.fromEntries(entries.map(([key, item]) => [key, itemForm(messages, field.type, item)]));
}

function itemForm(messages: Messages, type: string, value: unknown): unknown {
  if (type === 'time') return timestampForm(value as string);
  return isMessage(type) ? wireForm(messages, type, value as Plain) : value;
}

function timestampForm(text: string): { readonly seconds: number; readonly nanos: number } {
  const ms = Date.parse(text);
  const seconds = Math.floor(ms / 1000);
  return { seconds, nanos: (ms - seconds * 1000) * 1_000_000 };
}
