// Failed calls of providers' programs, with the end of what the program said. Programs may print secrets of the
// installation, so that text is for the scheduler's log and for checks of an administrator alone.
import { AppError } from '#shared/errors.ts';
import { withoutTokens } from './provider-answers.ts';

/** Characters of standard error that a failure keeps. */
const KEPT = 2048;
/** End of standard error that a failure's sentence has. */
const IN_SENTENCE = 300;

export class ProviderFailure extends AppError {
  /** Last lines that the program wrote to its standard error, without join tokens; empty: it wrote none. */
  readonly output: string;

  constructor(sentence: string, output: string, options: { readonly cause?: unknown } = {}) {
    super('provider_failed', sentence, options);
    this.name = 'ProviderFailure';
    this.output = output;
  }
}

/** Output of the program that failed; empty: there is none, or the failure is another. */
export const outputOf = (error: unknown): string => (error instanceof ProviderFailure ? error.output : '');

/** @param errors - end of a program's standard error @returns its last whole lines, with control characters removed */
export function keptOutput(errors: string): string {
  const text = withoutTokens(errors)
    .replaceAll('\r\n', '\n')
    .replaceAll(/[^\P{Cc}\n\t]+/gu, ' ')
    .trim();
  if (text.length <= KEPT) return text;
  const kept = text.slice(-KEPT);
  const lineEnd = kept.indexOf('\n');
  return lineEnd === -1 ? kept : kept.slice(lineEnd + 1);
}

/** The end of an output on one line, for a sentence; empty: there is none. */
export function inSentence(output: string): string {
  const line = output.replaceAll(/\s*[\n\t]+\s*/g, ' ');
  return line === '' ? '' : `: ${line.slice(-IN_SENTENCE)}`;
}
