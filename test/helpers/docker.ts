/**
 * The real engine for tests. Objects that a test makes carry this run's
 * label. Labelled leftovers of a test are removed, and then fail it.
 */
import { randomBytes } from 'node:crypto';
import Docker from 'dockerode';
import { missingService, testRunId } from './programs.ts';

/** Label of everything that a test makes; its value is the run, a dot, and the test's own part. */
export const TEST_LABEL = 'io.longshore.test';

/** The engine, and the label for a test's objects. */
export interface TestDocker {
  readonly client: Docker;
  /** Labels for everything that the test, or a daemon that it starts, makes: `{ 'io.longshore.test': … }`. */
  readonly labels: Readonly<Record<string, string>>;
  /** The value of that label, for daemons that take it as a setting. */
  readonly label: string;
  /** A Python image that the engine holds. */
  readonly baseImage: string;
  /** Starts a container that is removed with the test, without being asked to. */
  readonly run: (options: Docker.ContainerCreateOptions) => Promise<Docker.Container>;
  /** Removes what `run` started so far. */
  readonly removeOwn: () => Promise<void>;
  /** Removes what `run` started. @throws when the test left something else behind (it is removed too) */
  readonly cleanUp: () => Promise<void>;
}

/** The engine as one test sees it. */
export async function docker(): Promise<TestDocker> {
  const client = new Docker({ timeout: 30_000 });
  try {
    await client.ping();
  } catch (error) {
    throw new Error(missingService('A Docker Engine that answers').message, { cause: error });
  }
  const baseImage = await findBaseImage(client);
  const label = `${testRunId}.${randomBytes(4).toString('hex')}`;
  const labels = { [TEST_LABEL]: label };
  const own = new Set<string>();
  const removeOwn = async (): Promise<void> => {
    for (const id of own) await removeContainer(client, id);
    own.clear();
  };
  return {
    client,
    labels,
    label,
    baseImage,
    run: async (options) => {
      const container = await client.createContainer({
        Image: baseImage,
        ...options,
        Labels: { ...options.Labels, ...labels },
      });
      own.add(container.id);
      await container.start();
      return container;
    },
    removeOwn,
    cleanUp: async () => {
      await removeOwn();
      const left = await removeLabelled(client, `${TEST_LABEL}=${label}`);
      if (left.length > 0) throw new Error(`left behind in Docker: ${left.join(', ')}`);
    },
  };
}

async function removeContainer(client: Docker, id: string): Promise<void> {
  try {
    await client.getContainer(id).remove({ force: true, v: true });
  } catch (error) {
    if (statusOf(error) === 409) await client.getContainer(id).wait({ condition: 'removed' }).catch(ifGone);
    else ifGone(error);
  }
}

/** Removes all containers, networks and volumes with the label; returns their names. */
async function removeLabelled(client: Docker, label: string): Promise<string[]> {
  const filters = { label: [label] };
  const left: string[] = [];
  for (const container of await client.listContainers({ all: true, filters })) {
    left.push(`container ${container.Names[0]?.slice(1) ?? container.Id.slice(0, 12)} (${container.State})`);
    await removeContainer(client, container.Id);
  }
  for (const network of await client.listNetworks({ filters })) {
    left.push(`network ${network.Name}`);
    await client.getNetwork(network.Id).remove().catch(ifGone);
  }
  const { Volumes: volumes } = await client.listVolumes({ filters });
  for (const volume of volumes ?? []) {
    left.push(`volume ${volume.Name}`);
    await client.getVolume(volume.Name).remove().catch(ifGone);
  }
  return left;
}

function ifGone(error: unknown): void {
  if (statusOf(error) !== 404) throw error;
}

function statusOf(error: unknown): number | undefined {
  return error instanceof Error && 'statusCode' in error ? Number(error.statusCode) : undefined;
}

async function findBaseImage(client: Docker): Promise<string> {
  const given = process.env['LS_TEST_BASE_IMAGE'];
  for (const reference of given === undefined ? ['python:3.11-slim', 'longshore-python:3.11'] : [given]) {
    const held = await client
      .getImage(reference)
      .inspect()
      .then(
        () => true,
        (error: unknown) => {
          ifGone(error);
          return false;
        },
      );
    if (held) return reference;
  }
  throw missingService('The Python base image');
}
