// A language server as an editor talks to it: over standard input and output, for one file at a time.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

type Json = Readonly<Record<string, unknown>>;

const ANSWER_MS = 120_000;

export class LanguageServer {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (message: Json) => void>();
  #kept = Buffer.alloc(0);
  #last = 0;

  private constructor(command: string, args: readonly string[], env: NodeJS.ProcessEnv) {
    this.#child = spawn(command, args, { env, stdio: ['pipe', 'pipe', 'ignore'] });
    this.#child.stdout?.on('data', (part: Buffer) => this.#read(part));
  }

  /** Starts a server for a folder. */
  static async start(
    command: string,
    args: readonly string[],
    folder: string,
    env: NodeJS.ProcessEnv,
  ): Promise<LanguageServer> {
    const server = new LanguageServer(command, args, env);
    const uri = pathToFileURL(folder).href;
    const hover = { contentFormat: ['markdown'] };
    const capabilities = { textDocument: { hover }, workspace: { configuration: true } };
    const workspaceFolders = [{ uri, name: 'app' }];
    await server.#ask('initialize', { processId: process.pid, rootUri: uri, capabilities, workspaceFolders });
    server.#send({ method: 'initialized', params: {} });
    return server;
  }

  /** The text that an editor shows for the first occurrence of `text` in the file, at its last letter. */
  async hover(file: string, text: string): Promise<string> {
    const source = readFileSync(file, 'utf8');
    const uri = pathToFileURL(file).href;
    this.#send({
      method: 'textDocument/didOpen',
      params: { textDocument: { uri, languageId: 'python', version: 1, text: source } },
    });
    const before = source.slice(0, source.indexOf(text) + text.length - 1).split('\n');
    const position = { line: before.length - 1, character: before.at(-1)?.length ?? 0 };
    const answer = await this.#ask('textDocument/hover', { textDocument: { uri }, position });
    this.#send({ method: 'textDocument/didClose', params: { textDocument: { uri } } });
    const contents = (answer['result'] as Json | null)?.['contents'] as Json | undefined;
    return typeof contents?.['value'] === 'string' ? contents['value'] : '';
  }

  stop(): void {
    this.#child.kill('SIGKILL');
  }

  async #ask(method: string, params: Json): Promise<Json> {
    const id = ++this.#last;
    const { promise, resolve, reject } = Promise.withResolvers<Json>();
    const timer = setTimeout(() => reject(new Error(`the language server did not answer ${method}`)), ANSWER_MS);
    this.#waiting.set(id, resolve);
    this.#send({ id, method, params });
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
    }
  }

  #send(message: Json): void {
    const body = Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message }));
    this.#child.stdin?.write(`Content-Length: ${body.byteLength}\r\n\r\n`);
    this.#child.stdin?.write(body);
  }

  #read(part: Buffer): void {
    this.#kept = Buffer.concat([this.#kept, part]);
    for (;;) {
      const end = this.#kept.indexOf('\r\n\r\n');
      const length = Number(/Content-Length: (\d+)/i.exec(this.#kept.subarray(0, Math.max(end, 0)).toString())?.[1]);
      if (end < 0 || this.#kept.byteLength < end + 4 + length) return;
      const message = JSON.parse(this.#kept.subarray(end + 4, end + 4 + length).toString()) as Json;
      this.#kept = this.#kept.subarray(end + 4 + length);
      this.#take(message);
    }
  }

  #take(message: Json): void {
    const { id, method } = message;
    if (typeof method !== 'string') this.#waiting.get(Number(id))?.(message);
    else if (id !== undefined) {
      // The server asks for settings, and goes on with its defaults.
      const items = ((message['params'] as Json | undefined)?.['items'] ?? []) as readonly unknown[];
      this.#send({ id, result: method === 'workspace/configuration' ? items.map(() => ({})) : null });
    }
  }
}
