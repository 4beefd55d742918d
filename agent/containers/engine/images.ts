// Images of the engine: what is here, pulls, imports, and what a registry says.
import type { Readable } from 'node:stream';
import type Docker from 'dockerode';
import { withDeadline } from '#shared/backoff.ts';
import { BUILD_WORKSPACE_LABEL, isBuiltImage, isRegistryPortReference } from '#shared/domain/built-images.ts';
import { nameWithDigest, recordedDigest } from '#shared/domain/guarded-images.ts';
import { imageConfigProblem } from '#shared/domain/image-config.ts';
import { digestOf, withTag } from '#shared/domain/image-reference.ts';
import { readPullStream } from '../pull-stream.ts';
import { readPushStream } from '../push-stream.ts';
import type { ContainerRuntime, ImageFacts, PullOptions, PushOptions, RegistryAuth } from '../runtime.ts';
import { EngineError } from '../runtime.ts';
import type { EngineClient } from './client.ts';
import { statusOf, translate, wordsOf } from './errors.ts';
import { withoutServersWords } from './registry-words.ts';
import { drain } from './streams.ts';

export const IMPORT_DEADLINE_MS = 120_000;
/** Deadline for removing an image: files of many layers take long. */
const REMOVE_IMAGE_MS = 120_000;

type ImageCalls = Pick<
  ContainerRuntime,
  | 'image'
  | 'listImages'
  | 'imageIdsInUse'
  | 'removeImage'
  | 'registryDigest'
  | 'pull'
  | 'push'
  | 'importImage'
  | 'flatten'
>;

export function imageCalls(engine: EngineClient): ImageCalls {
  const calls = {
    async importImage(reference: string, tar: Readable, changes: readonly string[] = []): Promise<void> {
      const colon = reference.lastIndexOf(':');
      const work = async (abortSignal: AbortSignal): Promise<string> => {
        const stream = (await engine.docker.importImage(tar, {
          repo: reference.slice(0, colon),
          tag: reference.slice(colon + 1),
          ...(changes.length === 0 ? {} : { changes: changes.join('\n') }),
          abortSignal,
        })) as unknown as Readable;
        let answer = '';
        await drain(stream, abortSignal, (data) => (answer = (answer + data.toString()).slice(-4096)));
        return answer;
      };
      // A tar file that is not read to its end would stay open.
      const answer = await engine.call('import', work, IMPORT_DEADLINE_MS).finally(() => tar.destroy());
      const failure = /"error":"((?:[^"\\]|\\.)*)"/.exec(answer)?.[1];
      if (failure !== undefined) throw new EngineError('refused', `cannot import image ${reference}: ${failure}`);
    },
  };
  return {
    ...calls,

    async flatten(dockerId: string, reference: string, changes: readonly string[]): Promise<void> {
      const tar = await engine.call('export', () => engine.docker.getContainer(dockerId).export());
      await calls.importImage(reference, tar as Readable, changes);
    },

    async image(reference: string): Promise<ImageFacts | undefined> {
      try {
        const facts = (await engine.call('inspect_image', () =>
          engine.docker.getImage(reference).inspect(),
        )) as Awaited<ReturnType<Docker.Image['inspect']>> & {
          Descriptor?: object;
          Identity?: { Pull?: readonly object[] | null } | null;
        };
        const recorded = (facts.RepoTags ?? []).map(recordedDigest).filter((digest) => digest !== '');
        const named = (facts.RepoDigests ?? []).map((name) => digestOf(name)).filter((digest) => digest !== '');
        const digests = [...new Set([...recorded, ...named])];
        // With containerd's image store each name has a digest, even that of an image built here; the origin is a
        // separate field.
        const isLocal =
          digests.length === 0 ||
          (recorded.length === 0 &&
            facts.Descriptor !== undefined &&
            (facts.Identity?.Pull ?? []).length === 0 &&
            (await tellsOrigin(engine)));
        const names = [...(facts.RepoTags ?? []), ...(facts.RepoDigests ?? [])];
        // Anybody can label an image of a registry. Layers of builds have no name, and built images one of ours.
        const mayBeBuilt =
          names.length === 0 || names.some((name) => isBuiltImage(name) || isRegistryPortReference(name));
        const builtFor = mayBeBuilt ? (facts.Config?.Labels?.[BUILD_WORKSPACE_LABEL] ?? '') : '';
        const configProblem = imageConfigProblem(facts.Config ?? {});
        const known = { id: facts.Id, digests, tags: facts.RepoTags ?? [], isLocal, bytes: facts.Size, builtFor };
        return configProblem === undefined ? known : { ...known, configProblem };
      } catch (error) {
        if (statusOf(error) === 404) return undefined;
        throw translate(error, `cannot look for image ${reference}`);
      }
    },

    async listImages(): Promise<string[]> {
      const images = await engine.call('list_images', () => engine.docker.listImages());
      const names = images.flatMap((image) => [...(image.RepoTags ?? []), ...(image.RepoDigests ?? [])]);
      return [...new Set(names.filter((name) => !name.includes('<none>')).map(nameWithDigest))];
    },

    async imageIdsInUse(): Promise<ReadonlySet<string>> {
      const found = await engine.call('list', () => engine.docker.listContainers({ all: true }));
      return new Set(found.map((one) => one.ImageID));
    },

    async removeImage(reference: string): Promise<boolean> {
      try {
        await engine.call(
          'remove_image',
          () => engine.docker.getImage(reference).remove({ force: false }),
          REMOVE_IMAGE_MS,
        );
        return true;
      } catch (error) {
        if (statusOf(error) === 404) return true;
        if (statusOf(error) === 409) return false;
        throw translate(error, `cannot remove image ${reference}`);
      }
    },

    async registryDigest(reference: string, auth: RegistryAuth | undefined, deadlineMs: number): Promise<string> {
      try {
        // This call is outside the limit: the engine answers only when the registry does.
        const found = (await engine.timed(
          'registry_digest',
          () => engine.docker.getImage(withTag(reference)).distribution(authOption(auth)),
          deadlineMs,
        )) as { Descriptor?: { digest?: unknown } };
        const digest = found.Descriptor?.digest;
        if (typeof digest !== 'string') throw new EngineError('refused', 'the engine named no digest');
        return digest;
      } catch (error) {
        const message = `cannot ask the registry for image ${reference}: ${registryWordsOf(error)}`;
        const isRegistrys = REGISTRY_SAYS[statusOf(error) ?? 0] !== undefined;
        const { failure } = isRegistrys ? { failure: 'refused' as const } : translate(error, 'the registry');
        throw new EngineError(failure, message, { cause: error });
      }
    },

    async push(repository: string, tag: string, options: PushOptions): Promise<string> {
      const { auth, silenceMs, signal, onProgress } = options;
      return await transfer(engine, 'push', options, {
        begin: (abortSignal) => engine.docker.getImage(repository).push({ ...authOption(auth), tag, abortSignal }),
        read: (stream) => readPushStream(stream, silenceMs, signal, onProgress),
      });
    },

    async pull(reference: string, options: PullOptions): Promise<string> {
      const { auth, silenceMs, signal, onProgress } = options;
      const fromImage = withTag(reference);
      return await transfer(engine, 'pull', options, {
        begin: (abortSignal) => engine.docker.createImage(authOption(auth).authconfig, { fromImage, abortSignal }),
        read: (stream) => readPullStream(stream, silenceMs, signal, onProgress),
      });
    },
  };
}

interface Transfer {
  readonly begin: (abortSignal: AbortSignal) => Promise<unknown>;
  readonly read: (progress: Readable) => Promise<string>;
}

/**
 * A pull or a push: it is outside the limit, and lasts as long as the engine reports progress.
 * @throws Error with the registry's words; EngineError `unavailable` where the engine itself is down
 */
async function transfer(
  engine: EngineClient,
  operation: 'pull' | 'push',
  { silenceMs, signal }: { readonly silenceMs: number; readonly signal: AbortSignal },
  { begin, read }: Transfer,
): Promise<string> {
  const from = performance.now();
  const give = new AbortController();
  try {
    const stream = (await withDeadline(
      begin(AbortSignal.any([signal, give.signal])),
      silenceMs,
      () => new Error(`nothing heard for ${silenceMs / 1000} s`),
    )) as Readable;
    const digest = await read(stream);
    engine.onCall(operation, 'ok', (performance.now() - from) / 1000);
    return digest;
  } catch (error) {
    give.abort();
    engine.onCall(operation, 'error', (performance.now() - from) / 1000);
    // Without a status the engine itself is down; a stream that it cut off has its own message.
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'ECONNREFUSED' || code === 'ENOENT' || code === 'EACCES')
      throw new EngineError('unavailable', 'the container engine does not answer', { cause: error });
    throw new Error(registryWordsOf(error), { cause: error });
  }
}

/** Whether the engine reports the origin of images: from API 1.53 on (Docker 29.2). */
async function tellsOrigin(engine: EngineClient): Promise<boolean> {
  const { ApiVersion } = await engine.call('version', () => engine.docker.version());
  const [major = 0, minor = 0] = ApiVersion.split('.').map(Number);
  return major > 1 || (major === 1 && minor >= 53);
}

const REGISTRY_SAYS: Readonly<Record<number, string>> = { 401: 'unauthorized', 403: 'denied', 429: 'toomanyrequests' };

/** The error with the registry's code, which Docker 29 keeps in the status and omits from the text. */
function registryWordsOf(error: unknown): string {
  const [words, code] = [wordsOf(error), REGISTRY_SAYS[statusOf(error) ?? 0]];
  const isCoded = code === undefined || words.toLowerCase().includes(code);
  return withoutServersWords(isCoded ? words : `${code}: ${words}`);
}

interface AuthOption {
  readonly authconfig?: {
    readonly username: string;
    readonly password: string;
    readonly serveraddress: string;
    readonly identitytoken?: string;
  };
}

const authOption = (auth: RegistryAuth | undefined): AuthOption =>
  auth === undefined
    ? {}
    : {
        authconfig: {
          username: auth.username,
          password: auth.password,
          serveraddress: auth.serverAddress,
          ...(auth.identityToken === '' ? {} : { identitytoken: auth.identityToken }),
        },
      };
