/**
 * Parses the GPUs' condition from the tool, which `longshore agent check` asks for beside the listing. Pure. Fields
 * that a driver does not know are absent, and no finding mentions them.
 */
import type { ToolOutput } from './parse.ts';
import { isGpuUuid } from './parse.ts';

/**
 * Fields of one query. The reasons of held-down clocks have two names: one for drivers from 535 on, one for older
 * drivers.
 */
export const CONDITION_FIELDS = [
  'uuid',
  'persistence_mode',
  'ecc.mode.current',
  'ecc.errors.uncorrected.volatile.total',
  'retired_pages.pending',
  'pcie.link.width.current',
  'pcie.link.width.max',
  'fabric.state',
  'clocks_event_reasons.hw_thermal_slowdown',
  'clocks_event_reasons.hw_power_brake_slowdown',
  'clocks_throttle_reasons.hw_thermal_slowdown',
  'clocks_throttle_reasons.hw_power_brake_slowdown',
] as const;
export type ConditionField = (typeof CONDITION_FIELDS)[number];
export const REMAP_FIELDS = ['gpu_uuid', 'remapped_rows.pending', 'remapped_rows.failure'] as const;

export interface GpuCondition {
  readonly uuid: string;
  readonly persistence: boolean | undefined;
  readonly ecc: boolean | undefined;
  /** Uncorrectable memory errors since the driver was loaded. */
  readonly uncorrected: number;
  /** Memory rows that wait for a reset to be replaced, and a failure to replace rows. */
  readonly remapPending: boolean;
  readonly remapFailed: boolean;
  /** Lanes of the PCIe link; undefined: not reported. */
  readonly lanes: { readonly now: number; readonly most: number } | undefined;
  /** Why clocks are held down now; empty: they are not. */
  readonly slowedBy: string;
  /** State of NVLink through switches: `Completed` when it may be used; empty: the GPU has none. */
  readonly fabric: string;
}

/** A field that this driver does not know; undefined: all requested fields are known. */
export const unknownField = ({ stdout, stderr }: ToolOutput): string | undefined =>
  /Field "([^"]+)" is not a valid field/.exec(`${stdout}\n${stderr}`)?.[1];

/** @param remaps - output about remapped rows, where available */
export function parseConditions(
  fields: readonly ConditionField[],
  listed: string,
  remaps: string,
): readonly GpuCondition[] {
  const remapOf = new Map(rowsOf(remaps).map(([uuid = '', pending, failure]) => [uuid, { pending, failure }]));
  return rowsOf(listed).flatMap((values) => {
    const get = (field: ConditionField): string => values[fields.indexOf(field)] ?? '';
    const uuid = get('uuid');
    if (values.length !== fields.length || !isGpuUuid(uuid)) return [];
    const remap = remapOf.get(uuid);
    const isActive = (tail: string): boolean =>
      (['clocks_event_reasons', 'clocks_throttle_reasons'] as const).some(
        (head) => values[fields.indexOf(`${head}.${tail}` as ConditionField)] === 'Active',
      );
    const now = numberIn(get('pcie.link.width.current'));
    const most = numberIn(get('pcie.link.width.max'));
    const fabric = get('fabric.state');
    return [
      {
        uuid,
        persistence: onOrOff(get('persistence_mode')),
        ecc: onOrOff(get('ecc.mode.current')),
        uncorrected: numberIn(get('ecc.errors.uncorrected.volatile.total')) ?? 0,
        remapPending: isYes(remap?.pending) || isYes(get('retired_pages.pending')),
        remapFailed: isYes(remap?.failure),
        lanes: now === undefined || most === undefined ? undefined : { now, most },
        slowedBy: [
          ...(isActive('hw_thermal_slowdown') ? ['heat'] : []),
          ...(isActive('hw_power_brake_slowdown') ? ['the power supply'] : []),
        ].join(' and '),
        fabric: /^[A-Za-z][A-Za-z ]{0,30}$/.test(fabric) ? fabric : '',
      },
    ];
  });
}

const rowsOf = (stdout: string): string[][] =>
  stdout
    .split('\n')
    .filter((line) => line.includes(','))
    .map((line) => line.split(',').map((value) => value.trim()));

const onOrOff = (text: string): boolean | undefined =>
  text === 'Enabled' ? true : text === 'Disabled' ? false : undefined;
/** Whether a value means yes; some drivers print a number of rows instead. */
const isYes = (text: string | undefined): boolean => text !== undefined && (text === 'Yes' || Number(text) > 0);
const numberIn = (text: string): number | undefined => (/^\d+$/.test(text) ? Number(text) : undefined);
