// Builds by the engine's classic builder, and the images and containers that they leave.
import { Readable } from 'node:stream';
import { imageConfigProblem } from '#shared/domain/image-config.ts';
import type { BuildOptions, BuildResult, ContainerRuntime, ImageConfig } from '../runtime.ts';
import { EngineError, VISIBLE_DEVICES } from '../runtime.ts';
import { tarOf } from '../tar.ts';
import type { EngineClient } from './client.ts';
import { statusOf, translate, wordsOf } from './errors.ts';
import { drain } from './streams.ts';

const PRUNE_MS = 300_000;
const COMMIT_MS = 600_000;
const LOAD_MS = 60_000;
const CPU_PERIOD_US = 100_000;
/** Bound on one message of the engine. */
const MOST_MESSAGE = 4 * 1024 * 1024;
/** The builder's line about a layer that it made, or has. */
const LAYER = /^ ---> ([0-9a-f]{12,64})\s*$/;

type BuildCalls = Pick<
  ContainerRuntime,
  | 'build'
  | 'imageConfig'
  | 'imagesWithLabel'
  | 'imageIdWithLabel'
  | 'tagImage'
  | 'commit'
  | 'snapshot'
  | 'pruneImages'
  | 'containersOn'
  | 'containersNamed'
>;

/** An image's configuration, of which we read a part; the engine gets the whole of it back. */
interface RawConfig {
  readonly Labels?: Record<string, string> | null;
  readonly OnBuild?: string[] | null;
  readonly User?: string;
  readonly WorkingDir?: string;
  readonly Entrypoint?: string[] | null;
  readonly Cmd?: string[] | null;
  readonly Env?: string[] | null;
  readonly Shell?: string[] | null;
  readonly Volumes?: Readonly<Record<string, object>> | null;
}

/** A line of the engine's answer. */
interface Message {
  readonly stream?: unknown;
  readonly error?: unknown;
  readonly aux?: { readonly ID?: unknown } | null;
}

export function buildCalls(engine: EngineClient): BuildCalls {
  return {
    async imageConfig(reference: string): Promise<ImageConfig | undefined> {
      try {
        const { config, architecture } = await rawImage(engine, reference);
        const configProblem = imageConfigProblem(config);
        return {
          ...(configProblem === undefined ? {} : { configProblem }),
          labels: config.Labels ?? {},
          onBuild: config.OnBuild ?? [],
          env: config.Env ?? [],
          user: config.User ?? '',
          workingDir: config.WorkingDir ?? '',
          shell: config.Shell ?? [],
          program: [...(config.Entrypoint ?? []), ...(config.Cmd ?? [])],
          architecture,
        };
      } catch (error) {
        if (statusOf(error) === 404) return undefined;
        throw translate(error, `cannot look for image ${reference}`);
      }
    },

    async build(context: Readable, options: BuildOptions): Promise<BuildResult> {
      const { tag, network, memoryBytes, cpuMillicores, args, noCache } = options;
      const from = performance.now();
      const give = new AbortController();
      const signal = AbortSignal.any([options.signal, give.signal]);
      let unread: unknown;
      context.once('error', (error) => {
        unread = error;
        give.abort();
      });
      try {
        // This call is outside the limit: it lasts as long as the build.
        const stream = (await engine.docker.buildImage(context, {
          ...(tag === undefined ? {} : { t: tag }),
          dockerfile: 'Dockerfile',
          networkmode: network,
          memory: memoryBytes,
          memswap: memoryBytes,
          cpuperiod: CPU_PERIOD_US,
          cpuquota: Math.round((cpuMillicores / 1000) * CPU_PERIOD_US),
          buildargs: { ...args },
          nocache: noCache,
          rm: true,
          forcerm: true,
          pull: false,
          abortSignal: signal,
        })) as unknown as Readable;
        const result = await readBuild(stream, signal, options);
        engine.onCall('build', 'ok', (performance.now() - from) / 1000);
        return result;
      } catch (error) {
        engine.onCall('build', 'error', (performance.now() - from) / 1000);
        if (unread !== undefined) throw unread;
        if (signal.aborted) throw new EngineError('refused', 'the build was ended', { cause: error });
        if (statusOf(error) === 400) return { kind: 'failed', message: wordsOf(error) };
        throw translate(error, 'cannot build the image');
      } finally {
        context.destroy();
      }
    },

    async pruneImages(label: string, olderHours: number): Promise<void> {
      const filters = {
        dangling: { true: true },
        label: { [label]: true },
        ...(olderHours === 0 ? {} : { until: { [`${olderHours}h`]: true } }),
      };
      try {
        const unnamed = JSON.stringify({ dangling: filters.dangling, label: filters.label });
        const found = await engine.call('list_images', () => engine.docker.listImages({ filters: unnamed }));
        // A removal walks over all images of the engine, also where it finds nothing.
        if (found.length === 0) return;
        await engine.timed(
          'prune_images',
          () => engine.docker.pruneImages({ filters: JSON.stringify(filters) }),
          PRUNE_MS,
        );
      } catch (error) {
        // Another removal of images runs, which removes these, too.
        if (statusOf(error) !== 409) throw translate(error, 'cannot remove layers of builds');
      }
    },

    async imagesWithLabel(label: string): Promise<string[]> {
      const filters = JSON.stringify({ label: { [label]: true } });
      const images = await engine.call('list_images', () => engine.docker.listImages({ filters }));
      return images.flatMap((image) => image.RepoTags ?? []).filter((name) => !name.includes('<none>'));
    },

    async imageIdWithLabel(label: string): Promise<string | undefined> {
      // Without `all` an image on which others were built is left out.
      const filters = JSON.stringify({ label: { [label]: true } });
      const [found] = await engine.call('list_images', () => engine.docker.listImages({ all: true, filters }));
      return found?.Id;
    },

    async tagImage(imageId: string, name: string, tag = 'latest'): Promise<void> {
      try {
        await engine.call('tag_image', () => engine.docker.getImage(imageId).tag({ repo: name, tag }));
      } catch (error) {
        throw translate(error, `cannot name an image ${name}`);
      }
    },

    async commit(dockerId: string, imageId: string, labels: Readonly<Record<string, string>>): Promise<string> {
      try {
        const { config } = await rawImage(engine, imageId);
        const body = committedConfig(config, labels);
        const made = (await engine.timed(
          'commit',
          () =>
            engine.docker
              .getContainer(dockerId)
              .commit({ _query: { container: dockerId, pause: false }, _body: body } as object),
          COMMIT_MS,
        )) as { readonly Id?: unknown };
        if (typeof made.Id !== 'string') throw new Error('the engine named no image');
        return made.Id;
      } catch (error) {
        throw translate(error, 'cannot make an image of a container');
      }
    },

    async snapshot(dockerId: string, name: string, labels: Readonly<Record<string, string>>): Promise<void> {
      try {
        const { Config: own, Image: imageId } = await engine.call('inspect', () =>
          engine.questions.getContainer(dockerId).inspect(),
        );
        const { config } = await rawImage(engine, imageId);
        const body = snapshotConfig(config, own, labels);
        const made = (await engine.timed(
          'commit',
          (abortSignal) =>
            engine.docker
              .getContainer(dockerId)
              .commit({ _query: { container: dockerId, pause: true }, _body: body, abortSignal } as object),
          COMMIT_MS,
        )) as { readonly Id?: unknown };
        if (typeof made.Id !== 'string') throw new Error('the engine named no image');
        await nameWithoutContainer(engine, made.Id, name);
      } catch (error) {
        throw translate(error, 'cannot make an image of a container');
      }
    },

    async containersNamed(prefix: string): Promise<string[]> {
      const filters = JSON.stringify({ name: [`^/${prefix}`] });
      const found = await engine.call('list', () => engine.docker.listContainers({ all: true, filters }));
      return found.map((one) => one.Id);
    },

    async containersOn(network: string): Promise<string[]> {
      const found = await engine.call('list', () => engine.docker.listContainers({ all: true }));
      return found.filter((one) => one.HostConfig.NetworkMode === network).map((one) => one.Id);
    },
  };
}

/**
 * The configuration of a step's layer: that of the image below. The engine adds the program of the container where the
 * image has none, unless an empty list says so, and each variable of the container that is not named here.
 */
export const committedConfig = (image: RawConfig, labels: Readonly<Record<string, string>>): RawConfig => ({
  ...image,
  Env: [...(image.Env ?? []), ...[VISIBLE_DEVICES].filter((name) => !namesOf(image.Env).includes(name))],
  Entrypoint: image.Entrypoint ?? [],
  Cmd: image.Cmd ?? [],
  Labels: { ...image.Labels, ...labels },
});

/**
 * The configuration of a snapshot. The engine adds whatever of the container's own is not named here: a variable
 * without a value is left out of every container, and a label cannot be.
 */
export const snapshotConfig = (
  image: RawConfig,
  own: Pick<RawConfig, 'Env' | 'Labels'>,
  labels: Readonly<Record<string, string>>,
): RawConfig => ({
  ...image,
  Env: [...(image.Env ?? []), ...namesOf(own.Env).filter((name) => !namesOf(image.Env).includes(name))],
  Labels: {
    ...Object.fromEntries(Object.keys(own.Labels ?? {}).map((name) => [name, ''])),
    ...image.Labels,
    ...labels,
  },
  Entrypoint: image.Entrypoint ?? [],
  Cmd: image.Cmd ?? [],
  WorkingDir: image.WorkingDir || '/',
});

/** An image as engines before Docker 26 keep it: with the configuration of its container, secrets included. */
interface RawImage {
  readonly Architecture: string;
  readonly Variant?: string;
  readonly Os: string;
  readonly Created: string;
  readonly Config: RawConfig;
  readonly ContainerConfig?: Pick<RawConfig, 'Env'> | null;
  readonly RootFS: { readonly Layers?: readonly string[] };
}

/**
 * Names a committed image. Where the engine has put the container's configuration into it, another image of the same
 * layers gets the name, and the first one goes: a push would carry secrets.
 */
async function nameWithoutContainer(engine: EngineClient, imageId: string, name: string): Promise<void> {
  const image = engine.docker.getImage(imageId);
  const inspected = async (reference: string): Promise<RawImage> =>
    (await engine.call('inspect_image', () => engine.docker.getImage(reference).inspect())) as unknown as RawImage;
  const facts = await inspected(imageId);
  if ((facts.ContainerConfig?.Env ?? []).length === 0) {
    await engine.call('tag_image', () => image.tag({ repo: name, tag: 'latest' }));
    return;
  }
  try {
    const layers = facts.RootFS.Layers ?? [];
    const config = {
      architecture: facts.Architecture,
      ...(facts.Variant === undefined || facts.Variant === '' ? {} : { variant: facts.Variant }),
      os: facts.Os,
      created: facts.Created,
      config: facts.Config,
      rootfs: { type: 'layers', diff_ids: layers },
    };
    // The engine has the layers: it reads none of the files that are named for them.
    const manifest = {
      Config: 'config.json',
      RepoTags: [`${name}:latest`],
      Layers: layers.map((_, at) => `${at}.tar`),
    };
    const files = [
      { name: 'config.json', text: JSON.stringify(config) },
      { name: 'manifest.json', text: JSON.stringify([manifest]) },
    ];
    const load = async (abortSignal: AbortSignal): Promise<string> => {
      const stream = (await engine.docker.loadImage(Readable.from(tarOf(files, undefined)), {
        abortSignal,
      } as object)) as unknown as Readable;
      let text = '';
      await drain(stream, abortSignal, (data) => (text = (text + data.toString()).slice(-4096)));
      return text;
    };
    const answer = await engine.timed('load', load, LOAD_MS);
    const failure = /"error":"((?:[^"\\]|\\.)*)"/.exec(answer)?.[1];
    if (failure !== undefined) throw new EngineError('refused', `cannot make an image of a container: ${failure}`);
    if (((await inspected(name)).ContainerConfig?.Env ?? []).length > 0)
      throw new EngineError('refused', "the engine keeps the container's variables in its image");
  } finally {
    await engine.call('remove_image', () => image.remove({ force: false }));
  }
}

const namesOf = (variables: RawConfig['Env']): string[] =>
  (variables ?? []).map((one) => one.slice(0, one.includes('=') ? one.indexOf('=') : one.length));

async function rawImage(
  engine: EngineClient,
  reference: string,
): Promise<{ readonly config: RawConfig; readonly architecture: string }> {
  const facts = await engine.call('inspect_image', () => engine.docker.getImage(reference).inspect());
  const { Config, Architecture } = facts as { readonly Config?: RawConfig | null; readonly Architecture?: string };
  return { config: Config ?? {}, architecture: Architecture ?? '' };
}

/** A stream that ends without an image is a failure, with or without a word of the engine. */
async function readBuild(
  stream: Readable,
  signal: AbortSignal,
  { onText, onLayer }: Pick<BuildOptions, 'onText' | 'onLayer'>,
): Promise<BuildResult> {
  let rest = '';
  let imageId = '';
  let failure: string | undefined;
  const onMessage = (text: string): void => {
    let message: Message;
    try {
      message = JSON.parse(text) as Message;
    } catch {
      return;
    }
    if (typeof message.error === 'string') failure ??= message.error;
    if (typeof message.aux?.ID === 'string') imageId = message.aux.ID;
    if (typeof message.stream !== 'string') return;
    onText(message.stream);
    // The builder runs no program, so each such line is its own.
    const layer = LAYER.exec(message.stream)?.[1];
    if (layer !== undefined) onLayer(layer);
  };
  const decoder = new TextDecoder();
  const destroy = (): void => void stream.destroy();
  signal.addEventListener('abort', destroy, { once: true });
  try {
    await drain(stream, signal, (data) => {
      const lines = (rest + decoder.decode(data, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      if (rest.length > MOST_MESSAGE) rest = '';
      for (const line of lines) if (line.trim() !== '') onMessage(line);
    });
  } finally {
    signal.removeEventListener('abort', destroy);
  }
  if (signal.aborted) throw new EngineError('refused', 'the build was ended');
  if (rest.trim() !== '') onMessage(rest);
  if (failure !== undefined) return { kind: 'failed', message: failure };
  return imageId === ''
    ? { kind: 'failed', message: 'the engine ended the build without an image' }
    : { kind: 'built', imageId };
}
