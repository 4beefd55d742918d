// Code that `longshore map` and `longshore queue` share: values as a person types and reads them, and emptying one.
import { isUtf8 } from 'node:buffer';
import { jsonTextOf } from '#shared/json-text.ts';
import { shellWord } from '#shared/shell-word.ts';
import type { Client } from '../client.ts';
import { usageError } from '../errors.ts';
import { bytesOf, counted } from '../format.ts';
import { numberField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { isTerminal, note, print, printBytes, printJson, withoutControls } from '../print.ts';
import { sharedPath } from '../shared-names.ts';
import type { SharedKind } from '../shared-names.ts';
import { confirmDeletion, readSource } from '../typed.ts';
import { showDone } from './run.ts';
import type { Invocation } from './run.ts';
import { removeAll } from './volume.ts';

/** Bytes that a value has as Python reads them. */
const pickleOf = (item: JsonObject): Buffer => Buffer.from(textField(item, 'value'), 'base64');
export const isPickled = (item: JsonObject): boolean => textField(item, 'encoding') === 'pickle';

/** `JSON, 12 B`. */
export const kindOfValue = (item: JsonObject): string =>
  isPickled(item)
    ? `pickled by Python, ${bytesOf(pickleOf(item).length)}`
    : `JSON, ${bytesOf(Buffer.byteLength(textField(item, 'value')))}`;

/**
 * Prints a value: JSON as it is kept, byte by byte; a pickled one as the bytes that Python wrote, which no terminal
 * gets.
 * @param again - the command that gives the value, for the hint
 */
export function showValue(invocation: Invocation, item: JsonObject, again: string): void {
  if (invocation.options.json === true) return printJson(item);
  const value = textField(item, 'value');
  if (!isPickled(item)) {
    if (isTerminal()) print(withoutControls(value));
    else printBytes(Buffer.from(value), true);
    return;
  }
  note(`the value is ${kindOfValue(item)}`);
  if (isTerminal()) note(`\`${again} > FILE\` writes its bytes, which pickle.load reads; --json has them as base64`);
  else printBytes(pickleOf(item));
}

/** The JSON that a person gives: a text, `@file` or `-`. Its characters stay; a line end behind it is no part of it. */
export async function readJsonValue(given: string): Promise<string> {
  const bytes = await readSource(given, 'the value');
  const text = bytes.toString('utf8').replace(/\r?\n$/, '');
  if (!isUtf8(bytes) || jsonTextOf(text) === undefined)
    throw usageError(
      'the value is not JSON: write a text in quotes of its own, as in \'"ready"\', or name a file as @value.json',
    );
  return text;
}

/** The time of a value's life in a request; absent: as long as the scheduler keeps one. */
export const ttlOf = ({ ttl }: { readonly ttl?: number }): JsonObject =>
  ttl === undefined ? {} : { ttl_seconds: ttl };

/** Deletes all that a map or a queue has, after a question. @param entries - how many it has */
export async function clearShared(
  client: Client,
  kind: SharedKind,
  name: string,
  entries: number,
  { yes }: { readonly yes?: boolean },
  invocation: Invocation,
): Promise<void> {
  const noun = kind === 'map' ? 'entry' : 'item';
  if (yes !== true) await confirmDeletion(`${kind} ${name} has ${countedOf(entries, noun)}`, 'Delete all of them?');
  const path = await sharedPath(client, kind, '', { name });
  const removed = await removeAll(() => client.restCall('DELETE', path), kind === 'map' ? 'entries' : 'items');
  showDone(invocation, { name, removed, done: 'cleared' }, [
    `deleted ${countedOf(removed, noun)} of ${kind} ${shellWord(name)}`,
  ]);
}

const countedOf = (count: number, noun: 'entry' | 'item'): string =>
  noun === 'item' ? counted(count, noun) : `${count} ${count === 1 ? 'entry' : 'entries'}`;

/** Rows of the list: a name, its number of entries, and their bytes. */
export const nameRow = (one: JsonObject): readonly string[] => [
  textField(one, 'name'),
  String(numberField(one, 'entries')),
  bytesOf(numberField(one, 'bytes')),
];
