// Operations on files below the working directory of a container, as messages of a WebSocket (interface, gateway §10).
import type { WebSocket } from 'ws';
import { AppError } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import { isDevelopmentServer } from '../../../fleet/inside/access.ts';
import type { ReachedContainer } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';

/** Names of changed files that a reload is told; with more, any file may have changed. */
const MOST_PATHS = 1000;

export interface FileOperationParts {
  readonly webSocket: WebSocket;
  readonly inside: Pick<Inside, 'ask' | 'write'>;
  readonly container: ReachedContainer;
}

interface FileOperation {
  readonly op: 'WRITE' | 'DELETE' | 'MOVED';
  readonly path: string;
  readonly newPath: string;
  readonly isDir: boolean;
  readonly data: Buffer;
}

/**
 * Carries out operations on files, one after the other; a failure is told in a line. A development server is asked to
 * load its app anew once no further operation waits.
 */
export function takeFileOperations(
  { webSocket, inside, container }: FileOperationParts,
  tell: (line: string) => void,
): void {
  let line = Promise.resolve();
  let waiting = 0;
  let changed = new Set<string>();
  const reload = (paths: readonly string[]): void => {
    // The outcome is in the container's log.
    inside.ask(container, 'reload', paths.length > MOST_PATHS ? {} : { paths }).catch(() => undefined);
  };
  webSocket.on('message', (data: Buffer) => {
    waiting += 1;
    webSocket.pause();
    line = line
      .then(async () => {
        const asked = operationOf(data.toString('utf8'));
        if (asked === undefined) return;
        changed.add(asked.path);
        if (asked.op === 'MOVED') changed.add(asked.newPath);
        await carryOut(asked, inside, container);
      })
      .catch((error: unknown) => {
        const text = error instanceof AppError ? error.message : 'the operation on a file failed';
        tell(text);
      })
      .finally(() => {
        waiting -= 1;
        if (waiting > 0) return;
        webSocket.resume();
        if (changed.size > 0 && isDevelopmentServer(container.row)) reload([...changed]);
        changed = new Set();
      });
  });
}

/** @returns undefined: the message names the container, and nothing to do @throws AppError `bad_request` */
function operationOf(text: string): FileOperation | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined;
  }
  if (!isRecord(value)) throw new AppError('bad_request', 'a message must be a JSON object');
  const { op, path, newPath = '', isDir = false, data = '' } = value;
  if (op === undefined) return undefined;
  if (op !== 'WRITE' && op !== 'DELETE' && op !== 'MOVED')
    throw new AppError('bad_request', 'op must be WRITE, DELETE or MOVED');
  if (!isBelow(path)) throw new AppError('bad_request', 'path must be below the working directory');
  if (typeof newPath !== 'string' || (op === 'MOVED' && !isBelow(newPath)))
    throw new AppError('bad_request', 'newPath must be below the working directory');
  if (typeof data !== 'string') throw new AppError('bad_request', 'data must be base64');
  return { op, path, newPath, isDir: isDir === true, data: Buffer.from(data, 'base64') };
}

const isBelow = (path: unknown): path is string =>
  typeof path === 'string' &&
  path !== '' &&
  !path.includes('\0') &&
  !path.startsWith('/') &&
  !path.split('/').includes('..');

async function carryOut(
  { op, path, newPath, isDir, data }: FileOperation,
  inside: FileOperationParts['inside'],
  container: ReachedContainer,
): Promise<void> {
  if (op === 'DELETE') await inside.ask(container, 'remove', { path, recursive: true });
  else if (op === 'MOVED') await inside.ask(container, 'move', { path, newPath });
  else if (isDir) await inside.ask(container, 'mkdir', { path, mode: 0o755, parents: true });
  else await inside.write(container, { path, mode: 0o644, append: false, parents: true }, data);
}
