// The health of a device and the events that change it: a table with memory. Pure. Must stay true: only a healthy
// device is leased. A device becomes healthy by a probe alone (decision 0107), and is probed only once no process of
// its last container is left on it. A tool that does not answer does not prove that a device is gone.
import type { GpuState } from '#shared/domain/gpus.ts';
import { recoveryOf } from './parse.ts';

export interface DeviceHealth {
  readonly state: GpuState;
  /** Looks in a row without an answer about the device. */
  readonly missed: number;
  /** Why the device is not healthy; for people. */
  readonly why: string;
  /**
   * The driver asks for a recovery, or has asked since the device became unhealthy. A request that disappears means
   * that the recovery took place.
   */
  readonly resetAsked: boolean;
  /**
   * A passed probe makes the unhealthy device healthy; if false, a boot, a new driver or the requested recovery must
   * come first.
   */
  readonly probeCures: boolean;
  /**
   * Processes of the device's last container, or of a probe, may still use it: the state is then quarantined, unhealthy
   * or lost.
   */
  readonly unproven: boolean;
  /** Memory of the device is in use by nobody known: it waits, unprobed, until the memory is free again. */
  readonly occupied: boolean;
}

export type HealthEvent =
  /** The tool lists the device. `recovery`: the driver's requested action, where reported. */
  | { readonly kind: 'listed'; readonly recovery: string | undefined }
  /** The tool did not answer about the device. @param omitted - it answered, and did not show the device this once */
  | { readonly kind: 'missed'; readonly why: string; readonly omitted?: boolean }
  /** The tool answered, and does not list the device or cannot reach it. */
  | { readonly kind: 'absent'; readonly why: string }
  /**
   * The device takes no work before a reset. @param asked - the driver has asked for the reset @param probeCures - a
   * probe may decide where the driver does not ask
   */
  | { readonly kind: 'broken'; readonly why: string; readonly asked?: boolean; readonly probeCures?: boolean }
  /** Processes of the last lease may still use the device. */
  | { readonly kind: 'unproven'; readonly why: string }
  | { readonly kind: 'proved_free' }
  /** The host has booted since. */
  | { readonly kind: 'booted' }
  /** The host has loaded another driver. */
  | { readonly kind: 'new_driver' }
  /** The device survived an error, or a fact shows that no program may run there now. */
  | { readonly kind: 'doubted'; readonly why: string }
  /** Nobody has the device, and its memory is in use. */
  | { readonly kind: 'occupied'; readonly why: string }
  /** The memory is free again, or an operator knows whose it is. */
  | { readonly kind: 'vacated' }
  /** An operator returns the device, or has had it reset: a probe decides. */
  | { readonly kind: 'returned' }
  /** A probe ran. `why`: not empty when the device failed it */
  | { readonly kind: 'probed'; readonly why: string }
  /** No probe could run, for a reason that is not the device's. */
  | { readonly kind: 'not_probed'; readonly why: string };

const MISSED_TO_SUSPECT = 2;

export const HEALTHY: DeviceHealth = {
  state: 'healthy',
  missed: 0,
  why: '',
  resetAsked: false,
  probeCures: false,
  unproven: false,
  occupied: false,
};

const unprobed = (why: string): DeviceHealth => ({ ...HEALTHY, state: 'unprobed', why });
export const UNPROBED: DeviceHealth = unprobed('no probe has run yet');

/** The state of a device that only a probe can confirm; one that its last container may still use stays quarantined. */
const probedNext = ({ unproven }: DeviceHealth, why: string): DeviceHealth =>
  unproven ? { ...HEALTHY, state: 'quarantined', why: MAY_BE_USED, unproven } : unprobed(why);
export const MAY_BE_USED = 'its last container may still use it';

/** Whether a probe may make the device healthy. */
export const awaitsProbe = ({ state, missed, probeCures, unproven, occupied }: DeviceHealth): boolean =>
  missed === 0 && !unproven && !occupied && (state === 'unprobed' || (state === 'unhealthy' && probeCures));

/** Whether an unprobed device gives no answer: no probe can run, and somebody should look. */
export const isSilent = ({ state, missed, occupied }: DeviceHealth): boolean =>
  state === 'unprobed' && !occupied && missed >= MISSED_TO_SUSPECT;

export function healthAfter(before: DeviceHealth, event: HealthEvent): DeviceHealth {
  switch (event.kind) {
    case 'listed':
      return whenListed({ ...(isSilent(before) ? UNPROBED : before), missed: 0 }, event.recovery);
    case 'missed': {
      const missed = before.missed + 1;
      // The next answer must not make an unprobed device healthy, so it stays unprobed, with the reason.
      if (isSilent({ ...before, missed })) return { ...before, missed, why: event.why };
      if (before.state !== 'healthy' || (missed < MISSED_TO_SUSPECT && event.omitted !== true))
        return { ...before, missed };
      return { ...before, missed, state: 'suspect', why: event.why };
    }
    case 'absent':
      return before.state === 'lost' ? before : { ...HEALTHY, state: 'lost', why: event.why, unproven: true };
    case 'broken':
      return {
        ...before,
        state: 'unhealthy',
        why: event.why,
        resetAsked: event.asked ?? false,
        probeCures: event.probeCures ?? false,
      };
    case 'unproven':
      return before.state === 'unhealthy' || before.state === 'lost'
        ? { ...before, unproven: true }
        : { ...before, state: 'quarantined', why: event.why, unproven: true };
    case 'proved_free':
      if (before.state !== 'quarantined') return { ...before, unproven: false };
      return before.resetAsked
        ? { ...before, state: 'unhealthy', why: 'the driver asks for a recovery', unproven: false }
        : unprobed('no process is left on it; no probe has run since');
    case 'booted':
      // A device that a boot did not bring back must not vanish, so it stays lost; no process has survived the boot.
      return before.state === 'lost' ? { ...before, missed: 0, unproven: false } : UNPROBED;
    case 'new_driver':
      if (before.state === 'lost' || before.state === 'quarantined') return before;
      return probedNext(before, UNPROBED.why);
    case 'doubted':
      return before.state === 'healthy' || before.state === 'suspect' ? unprobed(event.why) : before;
    case 'returned':
      if (before.state === 'lost') return before;
      return { ...probedNext(before, 'an operator returned it; no probe has run since'), missed: before.missed };
    case 'occupied':
      return before.state === 'healthy' || before.state === 'suspect' || before.state === 'unprobed'
        ? { ...unprobed(event.why), missed: before.missed, occupied: true }
        : { ...before, occupied: true };
    case 'vacated':
      if (!before.occupied) return before;
      return before.state === 'unprobed'
        ? unprobed('its memory is free again; no probe has run since')
        : { ...before, occupied: false };
    case 'probed':
      if (!awaitsProbe({ ...before, missed: 0 })) return before;
      if (event.why === '') return { ...HEALTHY, missed: before.missed };
      return { ...before, state: 'unhealthy', why: `probe_failed: ${event.why}`, probeCures: true };
    case 'not_probed':
      return before.state === 'unprobed' && !before.occupied ? { ...before, why: event.why } : before;
  }
}

function whenListed(before: DeviceHealth, words: string | undefined): DeviceHealth {
  const recovery = words === undefined ? undefined : recoveryOf(words);
  const asks = recovery === 'drain' || recovery === 'reset';
  const { unproven } = before;
  const why = `the driver asks for: ${words}`;
  const asked = { ...HEALTHY, state: 'unhealthy', why, resetAsked: true, unproven } as const;
  switch (before.state) {
    case 'healthy':
    case 'unprobed':
      return asks ? asked : before;
    case 'suspect':
      return asks ? asked : HEALTHY;
    case 'lost':
      return asks ? asked : probedNext(before, 'it is back; no probe has run since');
    case 'quarantined':
      // Proof that the last lease is over comes first; the driver repeats its request until the recovery is done.
      return { ...before, resetAsked: asks };
    case 'unhealthy':
      if (asks) return { ...before, resetAsked: true, probeCures: false };
      if (recovery !== 'none') return before;
      return before.resetAsked
        ? probedNext(before, 'the driver asks for no recovery any more; no probe has run since')
        : { ...before, probeCures: true };
  }
}
