// Settings that the administrator changes while schedulers run, and the parts that use them.
import { StartupError } from '#shared/errors.ts';
import { networksProblem, OpenNetworks } from '../tasks/webhooks/open-networks.ts';
import { ownPorts } from '../tasks/webhooks/own-ports.ts';
import { InstallationTrail } from '../workspaces/events/installation-trail.ts';
import { RuntimeSettings } from '../workspaces/identity/runtime-settings.ts';
import { orderProblem, secondsProblem, SharingSetting } from '../workspaces/identity/sharing.ts';
import type { Events } from './events.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';

export interface RuntimeSettingParts {
  readonly runtimeSettings: RuntimeSettings;
  /** Addresses that may be dialled. */
  readonly rules: OpenNetworks;
  readonly sharing: SharingSetting;
}

/** @throws StartupError `bad_config` */
/** Settings of sharing that are seconds, with their variables and descriptions. */
const SECONDS = [
  [
    'reserve_after',
    'LONGSHORE_RESERVE_AFTER',
    'seconds after which a machine is reserved for a container that needs several GPUs, or half a machine; off: never',
  ],
  [
    'reclaim_after',
    'LONGSHORE_RECLAIM_AFTER',
    'seconds after which interruptible containers end for one whose workspace has less than its guarantee; off: never',
  ],
  [
    'reclaim_notice',
    'LONGSHORE_RECLAIM_NOTICE',
    'seconds that tasks of an interruptible container have, before they are given back',
  ],
  [
    'reclaim_min_run',
    'LONGSHORE_RECLAIM_MIN_RUN',
    'seconds that an interruptible container has run at least, unless a guarantee asks for its place',
  ],
] as const;

export function openRuntimeSettings(
  { db, clock, log, settings }: Infrastructure,
  { invalidation }: Identity,
  { writer: events }: Pick<Events, 'writer'>,
): RuntimeSettingParts {
  const { LONGSHORE_WEBHOOK_ALLOW: networks, LONGSHORE_SHARING_ORDER: order } = settings;
  const problem = networksProblem(networks);
  if (problem !== undefined)
    throw new StartupError('bad_config', `settings are wrong:\n  LONGSHORE_WEBHOOK_ALLOW: ${problem}`);
  for (const [name, variable] of SECONDS) {
    const wrong = secondsProblem(name, settings[variable]);
    if (wrong !== undefined) throw new StartupError('bad_config', `settings are wrong:\n  ${variable}: ${wrong}`);
  }
  const rules = new OpenNetworks(networks, ownPorts(settings));
  const sharing = new SharingSetting();
  const runtimeSettings = new RuntimeSettings({
    db,
    invalidation,
    trail: new InstallationTrail(db, events, () => clock.nowMs()),
    log,
    kinds: {
      webhook_allow: {
        environment: networks,
        variable: 'LONGSHORE_WEBHOOK_ALLOW',
        description: 'networks that are not public, to which callbacks, webhooks and requests to model servers may go',
        problem: networksProblem,
        apply: (value) => rules.set(value),
      },
      sharing_order: {
        environment: order,
        variable: 'LONGSHORE_SHARING_ORDER',
        description:
          'who gets a free machine: the workspace with the smallest share of them, or the container that waits longest (arrival)',
        problem: orderProblem,
        apply: (value) => sharing.setOrder(value),
      },
      ...Object.fromEntries(
        SECONDS.map(([name, variable, description]) => [
          name,
          {
            environment: settings[variable],
            variable,
            description,
            problem: (value: string) => secondsProblem(name, value),
            apply: (value: string) => sharing.setSeconds(name, value),
          },
        ]),
      ),
    },
  });
  return { runtimeSettings, rules, sharing };
}
