// A connection that has changed to another protocol by agreement of its caller and a program in a container: bytes pass
// both ways as they are, each no faster than the other side takes them.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { pipeline } from 'node:stream';
import type { Duplex } from 'node:stream';
import { headerList } from './head.ts';
import type { HeaderList } from './head.ts';
import type { Upgraded } from './port-frames.ts';
import type { Upgrade } from './upgrades.ts';

/** The protocol that the program agreed to, with the headers of its answer as they may pass. */
export interface PassedUpgrade extends Upgraded {
  readonly headers: HeaderList;
}

/** Time without bytes after which the kernel asks whether the caller is still there. */
const ALIVE_MS = 30_000;

export interface RawUpgradeEvents {
  /** @param isWhole - both sides ended in order */
  onOver(isWhole: boolean): void;
  onBytes(direction: 'in' | 'out', count: number): void;
}

/** Answers the caller with the program's 101, and passes bytes on until either side ends. */
export function passUpgraded(
  response: ServerResponse,
  upgrade: Upgrade,
  { head, headers, socket: program, early }: PassedUpgrade,
  added: HeaderList,
  events: RawUpgradeEvents,
): void {
  const { socket: caller, head: earlyOfCaller } = upgrade.take();
  response.removeAllListeners('finish');
  response.removeAllListeners('close');
  response.detachSocket(caller as Parameters<ServerResponse['detachSocket']>[0]);
  (caller as { setKeepAlive?: (isOn: boolean, ms: number) => void }).setKeepAlive?.(true, ALIVE_MS);
  const lines = [...added, ...headers, ['connection', 'upgrade'], ['upgrade', head.headers.upgrade ?? '']];
  const text = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  caller.write(`HTTP/1.1 101 Switching Protocols\r\n${text}\r\n`, 'latin1');
  if (early.length > 0) {
    events.onBytes('out', early.length);
    caller.write(early);
  }
  if (earlyOfCaller.length > 0) {
    events.onBytes('in', earlyOfCaller.length);
    program.write(earlyOfCaller);
  }
  caller.on('data', (chunk: Buffer) => events.onBytes('in', chunk.length));
  program.on('data', (chunk: Buffer) => events.onBytes('out', chunk.length));
  let open = 2;
  let isWhole = true;
  const over = (error: unknown, other: Duplex): void => {
    open -= 1;
    if (error !== null && error !== undefined) {
      isWhole = false;
      other.destroy();
    }
    if (open === 0) events.onOver(isWhole);
  };
  pipeline(caller, program, (error) => over(error, caller));
  pipeline(program, caller, (error) => over(error, program));
}

/** Headers of the program's answer, without those of its connection. */
export function headersOf({ rawHeaders }: IncomingMessage): HeaderList {
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) pairs.push([rawHeaders[at] ?? '', rawHeaders[at + 1] ?? '']);
  return headerList(pairs) ?? [];
}
