// How a device is, and what changes that: a table with memory. Pure. What must stay true: only a healthy one is leased; a device becomes healthy by a probe alone (decision 0107); a tool that does not answer is no proof that a device is gone.
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
  /** An unhealthy device becomes healthy by a probe that passes; else a boot, a new driver or a recovery that the driver asked for comes first. */
  readonly probeCures: boolean;
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
  /** The host has booted since, or has loaded another driver. */
  | { readonly kind: 'booted' }
  /** An error that the device survives, or a fact that says no program may run there now. */
  | { readonly kind: 'doubted'; readonly why: string }
  /** A probe ran. why: not empty when the device failed it */
  | { readonly kind: 'probed'; readonly why: string }
  /** No probe could run, for a reason that is not the device's. */
  | { readonly kind: 'not_probed'; readonly why: string };

const MISSED_TO_SUSPECT = 2;

export const HEALTHY: DeviceHealth = { state: 'healthy', missed: 0, why: '', resetAsked: false, probeCures: false };

const unprobed = (why: string): DeviceHealth => ({ ...HEALTHY, state: 'unprobed', why });
export const UNPROBED: DeviceHealth = unprobed('no probe has run yet');

/** Whether a probe may make it healthy. */
export const awaitsProbe = ({ state, missed, probeCures }: DeviceHealth): boolean =>
  missed === 0 && (state === 'unprobed' || (state === 'unhealthy' && probeCures));

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
      return { ...before, state: 'unhealthy', why: event.why, resetAsked: event.asked ?? false, probeCures: false };
    case 'unproven':
      return before.state === 'unhealthy' || before.state === 'lost'
        ? before
        : { ...before, state: 'quarantined', why: event.why };
    case 'proved_free':
      if (before.state !== 'quarantined') return before;
      return before.resetAsked
        ? { ...before, state: 'unhealthy', why: 'the driver asks for a recovery' }
        : unprobed('no process is left on it; no probe has run since');
    case 'booted':
      return before.state === 'lost' ? before : UNPROBED;
    case 'doubted':
      return before.state === 'healthy' || before.state === 'suspect' ? unprobed(event.why) : before;
    case 'probed':
      if (!awaitsProbe({ ...before, missed: 0 })) return before;
      if (event.why === '') return { ...HEALTHY, missed: before.missed };
      return { ...before, state: 'unhealthy', why: `probe_failed: ${event.why}`, probeCures: true };
    case 'not_probed':
      return before.state === 'unprobed' ? { ...before, why: event.why } : before;
  }
}

function whenListed(before: DeviceHealth, words: string | undefined): DeviceHealth {
  const recovery = words === undefined ? undefined : recoveryOf(words);
  const asks = recovery === 'drain' || recovery === 'reset';
  const asked = { ...HEALTHY, state: 'unhealthy', why: `the driver asks for: ${words}`, resetAsked: true } as const;
  switch (before.state) {
    case 'healthy':
    case 'unprobed':
      return asks ? asked : before;
    case 'suspect':
      return asks ? asked : HEALTHY;
    case 'lost':
      return asks ? asked : unprobed('it is back; no probe has run since');
    case 'quarantined':
      // The last lease, which may still use the device, comes first; the driver asks for the recovery until it was done.
      return { ...before, resetAsked: asks };
    case 'unhealthy':
      if (asks) return { ...before, resetAsked: true, probeCures: false };
      if (recovery !== 'none') return before;
      return before.resetAsked
        ? unprobed('the driver asks for no recovery any more; no probe has run since')
        : { ...before, probeCures: true };
  }
}
