/** A whole agent on a real engine, linked to a played scheduler, for each test. */
import type { ContainerSpec } from '#shared/protocol/generated/messages.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { test as base } from '../helpers/services.ts';

export interface Started {
  readonly world: AgentWorld;
  readonly deploy: (source: string, spec?: Partial<ContainerSpec>) => Promise<ReturnType<typeof anAssignment>>;
}

/** An agent that runs and is connected. */
export const test = base.extend('started', async ({ docker }, { onCleanup }): Promise<Started> => {
  const world = await agentWorld(docker.labels);
  onCleanup(() => world.end());
  await world.agent.start();
  await world.agent.connected;
  return {
    world,
    deploy: async (source, spec = {}) => {
      const code = world.scheduler.addArchive(await zip({ 'app.py': source }));
      return anAssignment({ code, ...spec });
    },
  };
});

/** Answers with its name, its process and its inputs. */
export const HELLO = `
import os
def handler(name="nobody", **rest):
    print("greeting", name)
    return {"hello": name, "pid": os.getpid(), "rest": rest}
`;
