// Operations on files below the working directory of a container, as messages of a WebSocket (interface, gateway §10)
// or of a call of gRPC.
import type { WebSocket } from 'ws';
import { AppError } from '#shared/errors.ts';
import { isRecord } from '#shared/json.ts';
import { isDevelopmentServer } from '../../../fleet/inside/access.ts';
import type { ReachedContainer } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';

/** Names of changed files that a reload is told; with more, any file may have changed. */
const MOST_PATHS = 1000;

export interface FileOperationParts {
  readonly inside: Pick<Inside, 'ask' | 'write'>;
  readonly container: ReachedContainer;
}

export interface FileOperation {
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
export class FileOperations {
  readonly #parts: FileOperationParts;
  readonly #tell: (line: string) => void;
  #line = Promise.resolve();
  #waiting = 0;
  #changed = new Set<string>();

  constructor(parts: FileOperationParts, tell: (line: string) => void) {
    this.#parts = parts;
    this.#tell = tell;
  }

  /**
   * Takes an operation. @param read - gives it; undefined: there is nothing to do
   * @returns resolves when it was carried out
   */
  take(read: () => FileOperation | undefined): Promise<void> {
    this.#waiting += 1;
    this.#line = this.#line
      .then(() => this.#carryOut(read()))
      .catch((error: unknown) => {
        this.#tell(error instanceof AppError ? error.message : 'the operation on a file failed');
      })
      .finally(() => {
        this.#waiting -= 1;
        if (this.#waiting === 0) this.#reload();
      });
    return this.#line;
  }

  async #carryOut(asked: FileOperation | undefined): Promise<void> {
    if (asked === undefined) return;
    this.#changed.add(asked.path);
    if (asked.op === 'MOVED') this.#changed.add(asked.newPath);
    await carryOut(asked, this.#parts);
  }

  #reload(): void {
    const paths = [...this.#changed];
    this.#changed = new Set();
    const { inside, container } = this.#parts;
    if (paths.length === 0 || !isDevelopmentServer(container.row)) return;
    // The outcome is in the container's log.
    inside.ask(container, 'reload', paths.length > MOST_PATHS ? {} : { paths }).catch(() => undefined);
  }
}

/** Takes operations as messages of a WebSocket. */
export function takeFileOperations(
  { webSocket, ...parts }: FileOperationParts & { readonly webSocket: WebSocket },
  tell: (line: string) => void,
): void {
  const operations = new FileOperations(parts, tell);
  let waiting = 0;
  webSocket.on('message', (data: Buffer) => {
    waiting += 1;
    webSocket.pause();
    void operations
      .take(() => operationOf(data.toString('utf8')))
      .then(() => {
        waiting -= 1;
        if (waiting === 0) webSocket.resume();
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
  if (typeof data !== 'string') throw new AppError('bad_request', 'data must be base64');
  return { op, ...placesOf({ op, path, newPath }), isDir: isDir === true, data: Buffer.from(data, 'base64') };
}

/** The paths of an operation. @throws AppError `bad_request` */
export function placesOf({
  op,
  path,
  newPath,
}: Pick<FileOperation, 'op'> & { readonly path: unknown; readonly newPath: unknown }): Pick<
  FileOperation,
  'newPath' | 'path'
> {
  if (!isBelow(path)) throw new AppError('bad_request', 'path must be below the working directory');
  if (typeof newPath !== 'string' || (op === 'MOVED' && !isBelow(newPath)))
    throw new AppError('bad_request', 'newPath must be below the working directory');
  return { path, newPath };
}

const isBelow = (path: unknown): path is string =>
  typeof path === 'string' &&
  path !== '' &&
  !path.includes('\0') &&
  !path.startsWith('/') &&
  !path.split('/').includes('..');

async function carryOut(
  { op, path, newPath, isDir, data }: FileOperation,
  { inside, container }: FileOperationParts,
): Promise<void> {
  if (op === 'DELETE') await inside.ask(container, 'remove', { path, recursive: true });
  else if (op === 'MOVED') await inside.ask(container, 'move', { path, newPath });
  else if (isDir) await inside.ask(container, 'mkdir', { path, mode: 0o755, parents: true });
  else await inside.write(container, { path, mode: 0o644, append: false, parents: true }, data);
}
