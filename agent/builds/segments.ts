// Parts of a build in their order: runs of instructions for the engine's builder, and what the agent does itself. Pure.
import type { Instruction } from '#shared/domain/dockerfile/instruction.ts';

/** Instructions from `from` up to `to`, without `to`. */
interface Span {
  readonly from: number;
  readonly to: number;
}

export type Segment =
  /** Instructions for the engine's builder, none of which runs a program. A stage begins with such a segment. */
  | (Span & { readonly kind: 'engine' })
  /** ARG instructions, whose values the steps and segments behind them need. */
  | (Span & { readonly kind: 'args' })
  /** A RUN instruction. */
  | { readonly kind: 'run'; readonly at: number };

/**
 * Splits the instructions of a build. RUN is never the engine's, because the engine's builder knows no bound on the
 * processes of a step.
 */
export function segmentsOf(instructions: readonly Pick<Instruction, 'name'>[]): readonly Segment[] {
  const segments: Segment[] = [];
  for (const [at, { name }] of instructions.entries()) {
    const before = segments.at(-1);
    if (name === 'RUN') {
      segments.push({ kind: 'run', at });
      continue;
    }
    const kind = name === 'ARG' ? 'args' : 'engine';
    if (before?.kind === kind && name !== 'FROM') segments[segments.length - 1] = { ...before, to: at + 1 };
    else segments.push({ kind, from: at, to: at + 1 });
  }
  return segments;
}
