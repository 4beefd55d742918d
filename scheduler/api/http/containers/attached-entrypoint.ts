// Output of the first program of a pod or sandbox, as an attached caller reads it, to the end of the container.
import { StringDecoder } from 'node:string_decoder';
import type { FrameStream } from '#shared/protocol/frame-stream.ts';
import { numberOf, textOf } from '#shared/protocol/frames.ts';
import type { ReachedContainer } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';
import type { Said } from './attached-log.ts';

const ANSWER_WITHIN_MS = 25_000;
/** The first program of a container. */
const ENTRYPOINT = 0;

/** Who reads. */
interface Reader {
  /** Takes a piece. A reader who is behind pauses the frames. */
  readonly say: (said: Said) => void;
  /** Called when the connection ended before the program. */
  readonly onLost: () => void;
}

/**
 * Gives the output, from its beginning, until the program ends or the caller has left.
 * @param readerOf - called once the container has answered
 */
export async function attachedEntrypoint(
  { inside, container }: { readonly inside: Pick<Inside, 'open'>; readonly container: ReachedContainer },
  left: AbortSignal,
  readerOf: (frames: FrameStream) => Reader,
): Promise<void> {
  const signal = AbortSignal.any([left, AbortSignal.timeout(ANSWER_WITHIN_MS)]);
  const opened = await inside.open(container, 'attach', { pid: ENTRYPOINT, stdout: 0, stderr: 0 }, signal);
  const close = (): void => opened.close();
  signal.addEventListener('abort', close, { once: true });
  await opened.answer();
  signal.removeEventListener('abort', close);
  left.addEventListener('abort', close, { once: true });
  const reader = readerOf(opened.frames);
  const decoders = { stdout: new StringDecoder('utf8'), stderr: new StringDecoder('utf8') };
  let hasEnded = false;
  opened.take({
    onFrame: ({ kind, header, body }) => {
      if (hasEnded) return;
      if (kind === 'data')
        reader.say({ output: decoders[textOf(header, 'stream') === 'stderr' ? 'stderr' : 'stdout'].write(body) });
      if (kind !== 'exit') return;
      hasEnded = true;
      const output = decoders.stdout.end() + decoders.stderr.end();
      reader.say({ output, done: true, exitCode: numberOf(header, 'exitCode') });
    },
    onOver: () => {
      if (!hasEnded) reader.onLost();
    },
  });
}
