/**
 * In which condition the tool shows the GPUs of a host: what `longshore agent check` asks beside the listing. Pure. Fields that a driver does not know are absent, and nothing is said of them.
 */
import type { ToolOutput } from './parse.ts';
import { isGpuUuid } from './parse.ts';

/** Asked for in one call; the reasons of clocks have two names, of drivers from 535 on and of those before. */
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
  /** Memory errors since the driver was loaded that could not be corrected. */
  readonly uncorrected: number;
  /** Memory that is to be replaced by the next reset, and memory that cannot be replaced any more. */
  readonly remapPending: boolean;
  readonly remapFailed: boolean;
  /** Lanes of its PCIe link; undefined: not told. */
  readonly lanes: { readonly now: number; readonly most: number } | undefined;
  /** Why its clocks are held down now; empty: they are not. */
  readonly slowedBy: string;
  /** State of NVLink through switches: `Completed` when it may be used; empty: the GPU has none. */
  readonly fabric: string;
}

/** The field that this driver does not know; undefined: it knows all that were asked for. */
export const unknownField = ({ stdout, stderr }: ToolOutput): string | undefined =>
  /Field "([^"]+)" is not a valid field/.exec(`${stdout}\n${stderr}`)?.[1];

/** @param remaps - the answer about remapped rows, where there is one */
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
/** A number of rows is a yes in some drivers. */
const isYes = (text: string | undefined): boolean => text !== undefined && (text === 'Yes' || Number(text) > 0);
const numberIn = (text: string): number | undefined => (/^\d+$/.test(text) ? Number(text) : undefined);
