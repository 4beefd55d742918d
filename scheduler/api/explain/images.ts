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

/** A built image that a container waits for. */
export interface AwaitedImage {
  readonly id: string;
  /** State of its last build. */
  readonly state: string;
  readonly error: string;
  readonly isInRegistry: boolean;
  readonly pushError: string;
  /** Machines that have it, with their health; empty health: the machine is gone. */
  readonly machines: readonly { readonly id: string; readonly health: string }[];
  /** Whether the installation has a registry for built images. */
  readonly hasRegistry: boolean;
}

const MOST_MACHINES = 3;
const MOST_ERROR = 300;

/** Where a built image is, and what comes next. Pure. */
export function awaitedImageTexts(image: AwaitedImage | undefined): readonly string[] {
  if (image === undefined) return ['its image is none of this workspace any more: deploy again, which builds it'];
  const { id, state, error, isInRegistry, pushError, machines, hasRegistry } = image;
  const show = `\`longshore image show ${id.slice(id.indexOf('/') + 1)}\` shows the output`;
  if (state === 'BUILDING') return [`its image is being built now: ${show}`];
  if (hasRegistry && isInRegistry)
    return ['its image is in the registry: the other machines cannot pull it, because they have no registry port'];
  const failed =
    state === 'FAILED'
      ? [
          `its image could not be built again: ${(error.split('\n')[0] ?? '').slice(0, MOST_ERROR)}; ${show}. It is tried again, with longer pauses`,
        ]
      : [];
  const named = machines.slice(0, MOST_MACHINES).map((one) => `${one.id} (${one.health || 'gone'})`);
  const more = machines.length > named.length ? ` and ${machines.length - named.length} more` : '';
  const place =
    machines.length === 0
      ? 'its image is on no machine, and is built again on one that may run it'
      : `its image is only on machine ${named.join(', ')}${more}. Where these can never run it (gone, drained, or its volume is elsewhere), it is built again on one that can`;
  const why = hasRegistry
    ? pushError === ''
      ? []
      : [`its image is not in the registry: ${pushError.slice(0, MOST_ERROR)}; the push is tried again`]
    : ['with a registry for built images every machine gets it: `longshore up --registry` or LONGSHORE_REGISTRY'];
  return [...failed, place, ...why];
}
