// An installed release for benchmarks of the agent: the output of `npm run build` with one program more.
import { join } from 'node:path';
import { AGENT_NODE_OPTIONS, AGENT_PROCESS_ENV } from '#shared/agent-process.ts';
import type { ChildOptions } from './child.ts';

const BUNDLE = new URL('../scripts/build/bundle.mjs', import.meta.url).href;
const RELEASE = new URL('../scripts/build/release.mjs', import.meta.url).href;

export interface Release {
  /** A program of `lib`, started with the settings of the agent's unit. */
  program(name: string, env: ChildOptions['env']): Omit<ChildOptions, 'name' | 'logPath'>;
  /** The same, by Node's own defaults. */
  bare(name: string, env: ChildOptions['env']): Omit<ChildOptions, 'name' | 'logPath'>;
  /** The scheduler, as its unit starts it. */
  readonly scheduler: Pick<ChildOptions, 'node' | 'file' | 'args'>;
}

/** @param programs - sources that are bundled as the agent is, and lie beside it under these names */
export async function writeBenchRelease(
  directory: string,
  programs: Readonly<Record<string, string>>,
): Promise<Release> {
  const { writeRelease } = (await import(RELEASE)) as { writeRelease: (directory: string) => Promise<void> };
  const { bundleProgram } = (await import(BUNDLE)) as {
    bundleProgram: (directory: string, entryPoints: Readonly<Record<string, string>>) => Promise<unknown>;
  };
  await writeRelease(directory);
  await bundleProgram(directory, programs);
  return releaseIn(directory, { AGENT_NODE_OPTIONS, AGENT_PROCESS_ENV });
}

/** How an agent of a release is started, as `shared/agent-process.ts` of its commit has it. */
export interface AgentProcess {
  readonly AGENT_NODE_OPTIONS: readonly string[];
  readonly AGENT_PROCESS_ENV: Readonly<Record<string, string>>;
}

/** @param directory - of a release that has been written */
export function releaseIn(directory: string, agent: AgentProcess): Release {
  const node = join(directory, 'bin', 'node');
  const file = (name: string): string => join(directory, 'lib', `${name}.mjs`);
  return {
    scheduler: { node, file: file('main'), args: ['scheduler'] },
    program: (name, env) => ({
      node,
      nodeOptions: agent.AGENT_NODE_OPTIONS,
      file: file(name),
      env: { ...env, ...agent.AGENT_PROCESS_ENV },
    }),
    bare: (name, env) => ({ node, file: file(name), env }),
  };
}
