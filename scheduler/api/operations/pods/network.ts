// The network of a sandbox, changed while it runs.
import { BlockList, isIP } from 'node:net';
import { PodDone, PodNetworkRequest } from '#shared/api/pods.ts';
import { AppError } from '#shared/errors.ts';
import type { ContainerChanges } from '../../../fleet/inside/changes.ts';
import type { StoredSpec } from '../../../fleet/containers/spec.ts';
import { networkOf } from '../../../fleet/containers/spec.ts';
import type { ContainerNetwork } from '../../../stores/store/queries/containers.ts';
import { podOperation } from './pod-operation.ts';
import type { PodParts } from './pod-operation.ts';
import type { Operation } from '../operation.ts';

export interface NetworkParts extends PodParts {
  readonly changes: Pick<ContainerChanges, 'change'>;
  /** @returns false: the container has ended, or is no sandbox */
  readonly keepNetwork: (containerId: string, network: ContainerNetwork) => Promise<boolean>;
}

/** An agent that is away gets the rules with its orders when it comes back. */
const KEPT = '; the rules are kept, and its agent sets them as soon as it can';

/** An agent takes no more. */
const MOST_RANGES = 10;
/** Time for the agent to change the filter of a container. */
const CHANGE_WITHIN_MS = 20_000;

export function networkOperations(parts: NetworkParts): readonly Operation[] {
  return [
    podOperation(parts, {
      name: 'SandboxUpdateNetworkPermissions',
      route: 'POST /network/update',
      request: PodNetworkRequest,
      response: PodDone,
      problem: ({ blockNetwork, allowList }) => networkProblem(blockNetwork, allowList),
      first: async (row, { blockNetwork, allowList }) => {
        if ((row.spec as Partial<StoredSpec>).kind !== 'sandbox')
          throw new AppError('bad_request', 'only the network of a sandbox changes while it runs');
        return (await parts.keepNetwork(row.id, { blockNetwork, allowList })) ? KEPT : '';
      },
      handle: async (container) => {
        // The row may have newer rules than the request: another caller's.
        await parts.changes.change(container, { network: networkOf(container.row) }, CHANGE_WITHIN_MS);
        return {};
      },
    }),
  ];
}

function networkProblem(blockNetwork: boolean, allowList: readonly string[]): string | undefined {
  if (blockNetwork && allowList.length > 0) return 'blockNetwork and allowList exclude each other: send one of them';
  if (allowList.length > MOST_RANGES) return `allowList has more than ${MOST_RANGES} ranges`;
  const wrong = allowList.find((range) => !isRange(range));
  return wrong === undefined
    ? undefined
    : `allowList: ${JSON.stringify(wrong.slice(0, 60))} is no range of addresses such as 198.51.100.0/24`;
}

/** A range with its prefix; names are not, because their addresses change. */
function isRange(text: string): boolean {
  const [, address = '', prefix = ''] = /^([0-9a-fA-F.:]+)\/(\d{1,3})$/.exec(text) ?? [];
  const family = isIP(address) === 4 ? 'ipv4' : 'ipv6';
  if (isIP(address) === 0 || Number(prefix) > (family === 'ipv4' ? 32 : 128)) return false;
  return new BlockList().addSubnet(address, Number(prefix), family) === undefined;
}
