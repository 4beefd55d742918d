// Tests of an agent with a gate before the engine.
import type { AgentWorld } from './agent.ts';
import { agentWorld } from './agent.ts';
import { engineGate } from './engine-gate.ts';
import { test as base } from './services.ts';

const behindGate = (isStarted: boolean) =>
  base
    // oxlint-disable-next-line no-empty-pattern -- vitest reads a fixture's needs from the pattern
    .extend('gate', async ({}, { onCleanup }) => {
      const gate = await engineGate();
      onCleanup(() => gate.close());
      return gate;
    })
    .extend('world', async ({ docker, gate }, { onCleanup }): Promise<AgentWorld> => {
      const world = await agentWorld(docker.labels, { DOCKER_HOST: gate.host });
      onCleanup(() => world.end());
      if (isStarted) {
        await world.agent.start();
        await world.agent.connected;
      }
      return world;
    });

/** The agent is connected. */
export const gated = behindGate(true);
/** The agent is not started yet. */
export const gatedBeforeStart = behindGate(false);
