import { registryOf } from '#shared/domain/image-reference.ts';

/** Finds the image's name in an agent's message: a stub without an image gets one by the machine's own setting. */
const NAMED = /\bimage (\S+?):? /;

/**
 * Steps to cure a container that failed because its image was missing. Pure.
 * @param message - of the agent
 * @param image - of its stub; empty: the machine's base image
 * @param machineId - where; empty: not known
 */
export function imageSteps(message: string, image: string, machineId: string): readonly string[] {
  const there = machineId === '' ? 'the machine that failed' : `machine ${machineId}`;
  const named = image === '' ? (NAMED.exec(message)?.[1] ?? '') : image;
  const registry = named === '' ? 'its registry' : `registry ${registryOf(named)}`;
  const steps = /no python3/.test(message)
    ? [`name an image that has a python3 (3.8 or newer)`]
    : [`see that ${there} can pull from ${registry}: \`docker pull ${named || 'IMAGE'}\` there says what fails`];
  if (image === '')
    steps.push(
      `the stub names no image, so this one is the base image of ${there}: set LONGSHORE_BASE_IMAGE of its agent to one that it has or can pull`,
    );
  return steps;
}
