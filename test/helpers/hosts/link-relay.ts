/**
 * A relay between an agent and its scheduler, on their unix sockets. The relay passes on every message of the link
 * unchanged. A test may tell it to lose messages, to repeat them, or to date them by another clock. The connections
 * themselves stay up: a lost message is one that a process forgets between two steps.
 */
import { chmodSync } from 'node:fs';
import { Server, ServerCredentials, credentials } from '@grpc/grpc-js';
import type {
  ClientDuplexStream,
  ClientReadableStream,
  Metadata,
  ServerDuplexStream,
  ServerUnaryCall,
  ServerWritableStream,
  sendUnaryData,
} from '@grpc/grpc-js';
import { SERVER_NAME, loadLink } from '#shared/protocol/link.ts';

/** A message as its kind is called on the wire: `desired`, `proceed`, `ack`, `run`, `result`, … */
export type Fate = (kind: string) => 'pass' | 'lose' | 'twice';

type Message = Readonly<Record<string, unknown>>;
type Bidi = ServerDuplexStream<Message, Message>;
/** A client of any method by its name. */
interface Loose {
  close(): void;
  [method: string]: (...args: unknown[]) => unknown;
}

export class LinkRelay {
  /** Decides about each message of the control and the task stream. */
  fate: Fate = () => 'pass';
  /** Milliseconds added to the scheduler's reports of its clock. */
  skewMs = 0;
  /** Kinds that were lost or doubled, in order. */
  readonly done: string[] = [];
  readonly #server = new Server();
  readonly #client: Loose;

  private constructor(schedulerSocket: string) {
    const { AgentLink } = loadLink().longshore.agent.v1;
    const options = { 'grpc.default_authority': SERVER_NAME };
    this.#client = new AgentLink(`unix:${schedulerSocket}`, credentials.createInsecure(), options) as unknown as Loose;
    this.#server.addService(AgentLink.service, {
      join: this.#unary('join'),
      renewCredential: this.#unary('renewCredential'),
      control: (call: Bidi) => this.#both(call, 'control'),
      tasks: (call: Bidi) => this.#both(call, 'tasks'),
      logs: (call: Bidi) => this.#both(call, 'logs'),
      fetchCode: (call: ServerWritableStream<Message, Message>) => {
        const up = this.#client['fetchCode']?.(call.request, call.metadata) as ClientReadableStream<Message>;
        up.on('data', (message: Message) => call.write(message));
        up.on('end', () => call.end());
        up.on('error', (error) => call.emit('error', error));
        call.on('cancelled', () => up.cancel());
      },
    });
  }

  /** @param socket - where the agent dials, in a directory of this user alone */
  static async start(socket: string, schedulerSocket: string): Promise<LinkRelay> {
    const relay = new LinkRelay(schedulerSocket);
    await new Promise<void>((resolve, reject) => {
      relay.#server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? resolve() : reject(error),
      );
    });
    chmodSync(socket, 0o600);
    return relay;
  }

  stop(): void {
    this.#server.forceShutdown();
    this.#client.close();
  }

  #unary(method: string) {
    return (call: ServerUnaryCall<Message, Message>, done: sendUnaryData<Message>): void => {
      this.#client[method]?.(call.request, call.metadata, done);
    };
  }

  #both(call: Bidi, method: string): void {
    const up = this.#client[method]?.(call.metadata) as ClientDuplexStream<Message, Message>;
    up.on('metadata', (metadata: Metadata) => call.sendMetadata(metadata));
    const pass = (
      from: ClientDuplexStream<Message, Message> | Bidi,
      to: ClientDuplexStream<Message, Message> | Bidi,
    ): void => {
      from.on('data', (message: Message) => {
        const kind = kindOf(message);
        const body = message[kind] as { serverTimeMs?: number } | undefined;
        if (body?.serverTimeMs !== undefined) body.serverTimeMs += this.skewMs;
        const fate = method === 'logs' ? 'pass' : this.fate(kind);
        if (fate !== 'pass') this.done.push(kind);
        if (fate !== 'lose') to.write(message);
        if (fate === 'twice') to.write(message);
      });
      from.on('end', () => to.end());
    };
    pass(call, up);
    pass(up, call);
    up.on('error', (error) => call.emit('error', error));
    call.on('cancelled', () => up.cancel());
    call.on('error', () => up.cancel());
  }
}

/** Kind of a message; for a batch, the kinds in it. */
function kindOf(message: Message): string {
  const kind = typeof message['message'] === 'string' ? message['message'] : '';
  if (kind !== 'batch') return kind;
  const { messages } = message['batch'] as { readonly messages: readonly Message[] };
  return messages.map(kindOf).join('+');
}
