/** Why no container is stopped for want of work now, whatever the queue says. */
export type ScaleInHold =
  | { readonly why: 'after_restart' | 'new_leader'; readonly leftMs: number }
  | { readonly why: 'mass_disconnect' };

export interface GraceFacts {
  /** Since this process started, and since it leads, by the monotonic clock. */
  readonly upMs: number;
  readonly leadingMs: number;
  /** After the start of a scheduler what ran before is left alone for so long. */
  readonly graceMs: number;
  /** The queue had containers when this process started: somebody's attempts may run in them that nobody has reported yet. */
  readonly adopted: boolean;
  readonly windowMs: number;
  /** Samples of the queue that succeeded since this process leads, the present one included. */
  readonly samples: number;
  /** Many machines went silent at once. */
  readonly guarded: boolean;
}

/** Looked at again so soon when nothing but the next sample is waited for. */
const NEXT_SAMPLE_MS = 1000;

/** undefined: containers may go. The longest of the reasons that apply. */
export function scaleInHold(facts: GraceFacts): ScaleInHold | undefined {
  if (facts.guarded) return { why: 'mass_disconnect' };
  const restartMs = facts.adopted ? facts.graceMs - facts.upMs : 0;
  const windowMs = facts.windowMs - facts.leadingMs;
  const sampleMs = facts.adopted && facts.samples < 2 ? NEXT_SAMPLE_MS : 0;
  if (restartMs > 0 && restartMs >= windowMs) return { why: 'after_restart', leftMs: restartMs };
  const leftMs = Math.max(windowMs, sampleMs);
  return leftMs > 0 ? { why: 'new_leader', leftMs } : undefined;
}
