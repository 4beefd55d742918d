// Formats values that people compare in tables: ages, durations, sizes, shares.
import type { JsonObject } from './json.ts';
import { numberField } from './json.ts';

/** The age of an RFC 3339 time: `12s`, `5m`, `3h`, `2d`; a dash for none. */
export function ageOf(time: string, nowMs: number): string {
  const atMs = Date.parse(time);
  return Number.isNaN(atMs) ? '-' : spanOf(Math.max(0, nowMs - atMs));
}

/** The time from start to end, or to now while there is no end; a dash when there is no start. */
export function durationOf(start: string, end: string, nowMs: number): string {
  const startMs = Date.parse(start);
  if (Number.isNaN(startMs)) return '-';
  const endMs = Date.parse(end);
  const ms = Math.max(0, (Number.isNaN(endMs) ? nowMs : endMs) - startMs);
  return ms < 10_000 ? `${(ms / 1000).toFixed(ms < 1000 ? 3 : 1)}s` : spanOf(ms);
}

function spanOf(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 120 * 60) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

/** Millicores as cores, none of them rounded away. */
export const coresOf = (millicores: number): string => `${Math.round(millicores) / 1000}`;

/** Millicores that were measured, to a hundredth of a core. */
export const usedCoresOf = (millicores: number): string => coresOf(Math.round(millicores / 10) * 10);

/** MiB, written as GiB from 1 GiB on. */
export function memoryOf(mib: number): string {
  return mib < 1024 ? `${mib} MiB` : `${Math.round((mib / 1024) * 10) / 10} GiB`;
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Bytes with a unit: `17 B`, `1.5 GiB`. */
export function bytesOf(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** `2 H100`, or a dash for none. */
export const gpusOf = (count: number, model: string): string => (count > 0 ? `${count} ${model}`.trim() : '-');

/** `63 %, 40 of 160 GiB, 700 W`: the driver's figures for a container's GPUs; a dash for none. */
export function gpuUseOf(use: JsonObject): string {
  const gib = (name: string): number => Math.round((numberField(use, name) / 1024 ** 3) * 10) / 10;
  const has = (name: string): boolean => use[name] !== null && use[name] !== undefined;
  const told = [
    ...(has('utilizationPct') ? [`${Math.round(numberField(use, 'utilizationPct'))} %`] : []),
    ...(has('memoryUsedBytes') ? [`${gib('memoryUsedBytes')} of ${gib('memoryTotalBytes')} GiB`] : []),
    ...(has('powerWatts') ? [`${Math.round(numberField(use, 'powerWatts'))} W`] : []),
  ];
  return told.length === 0 ? '-' : told.join(', ');
}

/** `3 containers`, `1 container`. */
export const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`;

/** `available (cordoned, DiskPressure)`; the word alone without notes. */
export const withNotes = (word: string, notes: readonly string[]): string =>
  notes.length === 0 ? word : `${word} (${notes.join(', ')})`;
