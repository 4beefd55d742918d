// How a device is, and what changes that: a table with memory. Pure. What must stay true: only a healthy one is leased; a tool that does not answer is no proof that a device is gone.
import type { GpuState } from '#shared/domain/gpus.ts';
import { recoveryOf } from './parse.ts';

export interface DeviceHealth {
  readonly state: GpuState;
  /** Probes in a row without an answer about it. */
  readonly missed: number;
  /** Why it is not healthy; for people. */
  readonly why: string;
  /** The driver asks for a recovery, or has asked since the device became unhealthy: when it asks no more, there was one. */
  readonly resetAsked: boolean;
}

export type HealthEvent =
  /** It answered. `recovery`: what the driver wants done, where it says so. */
  | { readonly kind: 'listed'; readonly recovery: string | undefined }
  /** The tool did not answer, or not about it. */
  | { readonly kind: 'missed'; readonly why: string }
  /** The tool answered, and does not list it or cannot reach it. */
  | { readonly kind: 'absent'; readonly why: string }
  /** The device takes no more work before a reset. @param asked - the driver has asked for that */
  | { readonly kind: 'broken'; readonly why: string; readonly asked?: boolean }
  /** Its last lease may still use it. */
  | { readonly kind: 'unproven'; readonly why: string }
  | { readonly kind: 'proved_free' }
  /** The host has booted since. */
  | { readonly kind: 'booted' };

const MISSED_TO_SUSPECT = 2;

export const HEALTHY: DeviceHealth = { state: 'healthy', missed: 0, why: '', resetAsked: false };

export function healthAfter(before: DeviceHealth, event: HealthEvent): DeviceHealth {
  switch (event.kind) {
    case 'listed':
      return whenListed({ ...before, missed: 0 }, event.recovery);
    case 'missed': {
      const missed = before.missed + 1;
      if (before.state !== 'healthy' || missed < MISSED_TO_SUSPECT) return { ...before, missed };
      return { ...before, missed, state: 'suspect', why: event.why };
    }
    case 'absent':
      return before.state === 'lost' ? before : { ...HEALTHY, state: 'lost', why: event.why };
    case 'broken':
      return { ...before, state: 'unhealthy', why: event.why, resetAsked: event.asked ?? false };
    case 'unproven':
      return before.state === 'unhealthy' || before.state === 'lost'
        ? before
        : { ...before, state: 'quarantined', why: event.why };
    case 'proved_free':
      if (before.state !== 'quarantined') return before;
      return before.resetAsked ? { ...before, state: 'unhealthy', why: 'the driver asks for a recovery' } : HEALTHY;
    case 'booted':
      return before.state === 'lost' ? before : HEALTHY;
  }
}

function whenListed(before: DeviceHealth, words: string | undefined): DeviceHealth {
  const recovery = words === undefined ? undefined : recoveryOf(words);
  const asks = recovery === 'drain' || recovery === 'reset';
  switch (before.state) {
    case 'healthy':
    case 'suspect':
    case 'lost':
      if (asks) return { ...HEALTHY, state: 'unhealthy', why: `the driver asks for: ${words}`, resetAsked: true };
      return before.state === 'healthy' ? before : HEALTHY;
    case 'quarantined':
      // The last lease, which may still use the device, comes first; the driver asks for the recovery until it was done.
      return { ...before, resetAsked: asks };
    case 'unhealthy': {
      if (before.resetAsked && recovery === 'none') return HEALTHY;
      return { ...before, resetAsked: before.resetAsked || asks };
    }
  }
}
