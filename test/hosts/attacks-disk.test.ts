// Attacks on a machine's disk: a container that writes and writes, into its code or its root. The container ends with a
// reason by name; its neighbours notice nothing.
import { describe, expect } from 'vitest';
import { jsonOf } from '../helpers/platform.ts';
import { testOnHosts, whyNoHosts } from '../helpers/hosts.ts';
import { waitFor } from '../helpers/services.ts';

const LIMIT_MIB = 64;
const settings = { LONGSHORE_AGENT_CONTAINER_DISK_MIB: String(LIMIT_MIB), LONGSHORE_MIN_FREE_DISK_PERCENT: '1' };

const test = testOnHosts({
  count: 1,
  // All data of the engine lies on a disk of its own, with room for the images but not for an attack's writes.
  host: () => ({ diskMib: 3000 }),
  agentSettings: () => ({ LONGSHORE_AGENT_CPU: '4', LONGSHORE_AGENT_MEMORY: '4096', ...settings }),
});

describe.skipIf(whyNoHosts !== undefined)('a container that fills the disk', () => {
  test.for([
    ['its view of the code', '/mnt/code/filler'],
    ['its root', '/var/tmp/filler'],
  ] as const)(
    'by %s ends at its limit, by name, and a neighbour is served all the while',
    async ([, path], { fleet }) => {
      const name = path.includes('code') ? 'code' : 'root';
      const neighbour = await fleet.deploy({
        app: 'counted.py',
        handler: 'either',
        name: `beside-${name}`,
        keepWarmSeconds: 600,
      });
      const first = await fleet.invoke(neighbour, { key: 'first', seconds: 0 });
      const { container: beside } = jsonOf<{ container: string }>(first);
      const filler = await fleet.deploy({
        app: 'filler.py',
        handler: 'fill',
        name: `filler-${name}`,
        stubType: 'taskqueue/deployment',
        timeout: 120,
        retries: 0,
      });
      await fleet.put(filler, { path, mib: 6144, per_second: 20 });
      const container = await waitFor(
        async () => (await fleet.containerViews()).find(({ deploymentId }) => deploymentId === filler.deploymentId),
        'the filler has a container',
        30_000,
      );
      await waitFor(
        async () => {
          expect(await fleet.invoke(neighbour, { key: 'first', seconds: 0 })).toMatchObject({ status: 200 });
          const { container: section } = await fleet.explain(container.containerId);
          return section?.reason === 'disk_limit';
        },
        'it ends at its limit',
        60_000,
      );
      const { container: section } = await fleet.explain(container.containerId);
      const wrote = Number(/it wrote (\d+) MiB/.exec(section?.message ?? '')?.[1]);
      expect(section?.message).toContain(`may write ${LIMIT_MIB} MiB (LONGSHORE_AGENT_CONTAINER_DISK_MIB`);
      expect(wrote).toBeGreaterThan(LIMIT_MIB);
      // The bound allows an eighth of the limit, and 20 MiB a second for a tick of 2 s and a look.
      expect(wrote).toBeLessThan(3 * LIMIT_MIB);
      // The neighbour is the same container as before.
      expect(jsonOf(await fleet.invoke(neighbour, { key: 'last', seconds: 0 }))).toMatchObject({ container: beside });
      // The container's files are gone with it.
      await waitFor(
        async () =>
          (await fleet.members[0]?.host.containers([`io.longshore.container=${container.containerId}`]))?.length === 0,
        'it is removed',
        30_000,
      );
      await fleet.gateway(`/deployments/${filler.deploymentId}/stop`, {});
    },
  );
});
