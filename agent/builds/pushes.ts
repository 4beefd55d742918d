/**
 * Pushes images that this agent built to the managed registry, through the registry port. Must stay true: an image is
 * pushed for its own workspace alone; its name in the registry is here for the push only.
 */
import type { Socket } from 'node:net';
import { sleep } from '#shared/backoff.ts';
import { BUILD_LABEL, BUILD_WORKSPACE_LABEL } from '#shared/domain/built-images.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { cut, encodeEvent } from '#shared/protocol/build-events.ts';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import type { BuildImage__Output, PushTo__Output } from '#shared/protocol/generated/messages.ts';
import { Limiter } from '../containers/limiter.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { classifyPull, isTransient } from '../images/failures.ts';
import type { Pulled } from '../images/ledger.ts';

export interface ImagePushesParts {
  readonly runtime: Pick<ContainerRuntime, 'image' | 'imageConfig' | 'tagImage' | 'push' | 'removeImage'>;
  /** `host:port` of the registry port; undefined: it is not open. */
  readonly host: () => string | undefined;
  readonly machineId: () => string;
  /** From now on the image can be pulled again, so the disk may be freed of it. */
  readonly onPushed: (image: string, how: Pulled) => Promise<void>;
  readonly onEnded: (result: 'ok' | 'failed', seconds: number) => void;
  readonly log: Log;
}

const AT_ONCE = 2;
const TRIES = 3;
const RETRY_MS = 2000;
/** The registry reads a large layer to its end before it answers. */
const SILENCE_MS = 15 * 60_000;
const TOTAL_MS = 30 * 60_000;
const TELL_EVERY_MS = 3000;
const LINGER_MS = 10_000;
const MB = 1_000_000;

export class ImagePushes {
  readonly #parts: ImagePushesParts;
  readonly #limit = new Limiter(AT_ONCE);

  constructor(parts: ImagePushesParts) {
    this.#parts = parts;
  }

  /** Carries an order out; the end of its connection ends the push. */
  async take(order: BuildImage__Output, to: PushTo__Output, link: Socket): Promise<void> {
    const gone = new AbortController();
    link.on('error', () => undefined);
    link.once('close', () => gone.abort());
    link.once('end', () => gone.abort());
    link.resume();
    const { log, onEnded } = this.#parts;
    const from = performance.now();
    let last: BuildEvent;
    try {
      const signal = AbortSignal.any([gone.signal, AbortSignal.timeout(TOTAL_MS)]);
      const digest = await this.#limit.run(() => this.#push(order, to, link, signal));
      last = { pushed: digest };
    } catch (error) {
      log.info({ err: error, image: order.image }, 'an image could not be pushed');
      last = { failed: cut(messageOf(error)), step: '' };
    }
    onEnded('pushed' in last ? 'ok' : 'failed', (performance.now() - from) / 1000);
    if (link.writable) link.end(encodeEvent(last));
    setTimeout(() => link.destroy(), LINGER_MS).unref();
  }

  /** @returns the digest in the registry */
  async #push(order: BuildImage__Output, to: PushTo__Output, link: Socket, signal: AbortSignal): Promise<string> {
    const { runtime, host: hostOf, machineId, onPushed } = this.#parts;
    const { image, workspaceId } = order;
    const host = hostOf();
    if (host === undefined) throw new Error('the registry port of the agent is not open');
    if (to.auth === null) throw new Error('the order has no token');
    const facts = await runtime.image(image);
    const labels = (await runtime.imageConfig(image))?.labels ?? {};
    if (facts === undefined || labels[BUILD_LABEL] !== machineId() || labels[BUILD_WORKSPACE_LABEL] !== workspaceId)
      throw new Error(`image ${image} was not built here for this workspace`);
    const repository = `${host}/${to.repository}`;
    await runtime.tagImage(facts.id, repository, to.tag);
    try {
      const options = {
        auth: { ...to.auth, serverAddress: host },
        silenceMs: SILENCE_MS,
        signal,
        onProgress: teller(link),
      };
      const digest = await this.#tries(() => runtime.push(repository, to.tag, options), signal);
      await onPushed(image, { private: false, imageId: facts.id, workspaceId });
      return digest;
    } finally {
      await runtime.removeImage(`${repository}:${to.tag}`).catch(() => undefined);
    }
  }

  async #tries(push: () => Promise<string>, signal: AbortSignal): Promise<string> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await push();
      } catch (error) {
        // A registry that collects its layers may take some of a push that is under way.
        const isOver = tries >= TRIES || signal.aborted || !mayWorkAgain(messageOf(error));
        if (isOver || !(await sleep(RETRY_MS * tries, signal))) throw error;
      }
    }
  }
}

const mayWorkAgain = (message: string): boolean =>
  isTransient(classifyPull(message)) || /blob (?:upload )?unknown|manifest blob unknown/i.test(message);

/** Tells of a push's progress now and then. */
function teller(link: Socket): (doneBytes: number, totalBytes: number) => void {
  let toldMs = 0;
  return (doneBytes, totalBytes) => {
    const nowMs = performance.now();
    if (nowMs - toldMs < TELL_EVERY_MS || !link.writable) return;
    toldMs = nowMs;
    link.write(encodeEvent({ note: `pushed ${Math.floor(doneBytes / MB)} of ${Math.ceil(totalBytes / MB)} MB` }));
  };
}
