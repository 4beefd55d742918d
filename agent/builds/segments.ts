// Parts of a build in their order: runs of instructions for the engine's builder, and what the agent does itself. Pure.
import type { Instruction } from '#shared/domain/dockerfile.ts';

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

/**
 * The command of a RUN, as the engine's builder reads it: a list of texts, else a script for the image's shell.
 * @param shell - the shell of the image, with its flags; empty: the engine's default
 */
export function commandOf({ rest }: Pick<Instruction, 'rest'>, shell: readonly string[]): readonly string[] {
  const list = rest.startsWith('[') ? listOf(rest) : undefined;
  return list ?? [...(shell.length > 0 ? shell : DEFAULT_SHELL), rest];
}

const DEFAULT_SHELL = ['/bin/sh', '-c'];

function listOf(text: string): readonly string[] | undefined {
  try {
    const list: unknown = JSON.parse(text);
    const isList = Array.isArray(list) && list.length > 0 && list.every((one) => typeof one === 'string');
    return isList ? list : undefined;
  } catch {
    return undefined;
  }
}

/** Names that ARG instructions declare; a name that no `$NAME` can mean is left out. */
export const declaredBy = (instructions: readonly Pick<Instruction, 'rest'>[]): readonly string[] =>
  instructions.flatMap(({ rest }) => /^([A-Za-z_][A-Za-z0-9_]*)(?:=|$)/.exec(rest)?.[1] ?? []);
