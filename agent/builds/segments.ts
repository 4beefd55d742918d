// Parts of a build in their order: runs of instructions for the engine's builder, and steps for containers of our own.
// Pure.
import type { Instruction } from '#shared/domain/dockerfile.ts';
import { isRecord } from '#shared/json.ts';

export type Segment =
  /** Instructions from `from` up to `to`, without `to`. */
  | { readonly kind: 'engine'; readonly from: number; readonly to: number }
  /** A step whose script a shell of the image runs. */
  | { readonly kind: 'apart'; readonly at: number; readonly script: string };

/**
 * Splits the instructions of a build. Only steps behind the last stage and the last file from outside can run apart: a
 * container of our own knows one image and no other files.
 * @param isApart - whether the order asks for it, of each instruction
 */
export function segmentsOf(
  instructions: readonly Pick<Instruction, 'name' | 'rest'>[],
  isApart: (at: number) => boolean,
): readonly Segment[] {
  const last = instructions.findLastIndex(({ name }) => name === 'FROM' || name === 'COPY' || name === 'ADD');
  const segments: Segment[] = [];
  for (const [at, instruction] of instructions.entries()) {
    const script = at > last && isApart(at) ? scriptOf(instruction) : undefined;
    const before = segments.at(-1);
    if (script !== undefined) segments.push({ kind: 'apart', at, script });
    else if (before?.kind === 'engine') segments[segments.length - 1] = { ...before, to: at + 1 };
    else segments.push({ kind: 'engine', from: at, to: at + 1 });
  }
  return segments;
}

/** The script of `RUN ["/bin/sh", "-c", script]`, the form of the scheduler's own steps. */
function scriptOf({ name, rest }: Pick<Instruction, 'name' | 'rest'>): string | undefined {
  if (name !== 'RUN' || !rest.startsWith('[')) return undefined;
  try {
    const list: unknown = JSON.parse(rest);
    if (!Array.isArray(list) || list.length !== 3 || isRecord(list[2])) return undefined;
    const [shell, flag, script] = list as readonly unknown[];
    return shell === '/bin/sh' && flag === '-c' && typeof script === 'string' ? script : undefined;
  } catch {
    return undefined;
  }
}
