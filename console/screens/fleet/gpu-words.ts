// Words, letters and shapes of GPUs. Pure.
import type { GpuRecord } from '#shared/api/rest/gpus.ts';

export type GpuLook = 'busy' | 'idle' | 'free' | 'blocked' | 'out';

export const lookOf = ({ standing, idle_since }: Pick<GpuRecord, 'standing' | 'idle_since'>): GpuLook =>
  standing === 'leased' ? (idle_since === null ? 'busy' : 'idle') : standing;

const BY_MARK: Readonly<Record<string, GpuLook>> = { L: 'busy', I: 'idle', F: 'free', B: 'blocked', X: 'out' };
/** The look that a letter of `GET /gpu-map` stands for. */
export const lookOfMark = (mark: string): GpuLook => BY_MARK[mark] ?? 'out';

/** A shape and a letter for each, so that none is told by its colour alone. */
export const LOOKS: Readonly<Record<GpuLook, { readonly mark: string; readonly words: string }>> = {
  busy: { mark: '█ L', words: 'leased' },
  idle: { mark: '░ I', words: 'leased, below 5 % for 10 minutes' },
  free: { mark: '· F', words: 'free' },
  blocked: { mark: '▒ B', words: 'sound, but its machine takes nothing new' },
  out: { mark: '✕ X', words: 'out' },
};

const GIB = 2 ** 30;
export const gibOf = (bytes: number | null): string => (bytes === null ? '–' : `${(bytes / GIB).toFixed(1)} GiB`);

/** The known numbers of the use of a GPU, in a line. */
export function useOf(gpu: GpuRecord): string {
  if (gpu.sampled_at === null) return 'its use is not known';
  return [
    gpu.utilization_pct === null ? '' : `${Math.round(gpu.utilization_pct)} % busy`,
    gpu.memory_used_bytes === null ? '' : `${gibOf(gpu.memory_used_bytes)} of ${gibOf(gpu.memory_bytes)}`,
    gpu.power_watts === null ? '' : `${gpu.power_watts} W`,
    gpu.temperature_celsius === null ? '' : `${gpu.temperature_celsius} °C`,
  ]
    .filter((text) => text !== '')
    .join(' · ');
}

/** Where a key leads to in a grid of rows with these lengths. */
export function movedTo(
  key: string,
  at: { readonly row: number; readonly column: number },
  lengths: readonly number[],
): { readonly row: number; readonly column: number } | undefined {
  const within = (row: number, column: number) => ({
    row,
    column: Math.max(0, Math.min(column, (lengths[row] ?? 1) - 1)),
  });
  switch (key) {
    case 'ArrowRight':
      return within(at.row, at.column + 1);
    case 'ArrowLeft':
      return within(at.row, at.column - 1);
    case 'ArrowDown':
      return within(Math.min(at.row + 1, lengths.length - 1), at.column);
    case 'ArrowUp':
      return within(Math.max(at.row - 1, 0), at.column);
    case 'Home':
      return within(at.row, 0);
    case 'End':
      return within(at.row, Number.MAX_SAFE_INTEGER);
    default:
      return undefined;
  }
}
