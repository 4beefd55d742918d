/**
 * Every operation of the gateway: its call, its answer (exactly these fields, no others), and each way in which it may
 * fail. The walk (gateway-walk.ts) takes each operation through every caller and every spelling. Field lists are
 * written out in these tables and not read off our schemas.
 */
import { deploymentVerbs } from './gateway-verbs/deployments.ts';
import { fleetVerbs } from './gateway-verbs/fleet.ts';
import { identityVerbs } from './gateway-verbs/identity.ts';
import { IMAGE_VERBS } from './gateway-verbs/images.ts';
import { poolVerbs } from './gateway-verbs/pools.ts';
import type { GatewayVerb } from './gateway-verbs/row.ts';
import { stubVerbs } from './gateway-verbs/stubs.ts';
import type { Platform } from './verbs-fixture.ts';
import type { Kit } from './verbs-kit.ts';

export const gatewayVerbs = (platform: () => Platform, kit: Kit): readonly GatewayVerb[] => [
  ...IMAGE_VERBS,
  ...identityVerbs(kit),
  ...stubVerbs(platform, kit),
  ...deploymentVerbs(platform, kit),
  ...fleetVerbs(platform, kit),
  ...poolVerbs(platform, kit),
];
