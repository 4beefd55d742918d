import type { Redis } from 'ioredis';

/** Names of the commands that a process sends to Redis from now on. */
export function commandsOf({ client }: { readonly client: Redis }): string[] {
  const said: string[] = [];
  const send = client.sendCommand.bind(client);
  client.sendCommand = (command, ...more) => {
    said.push(command.name);
    return send(command, ...more);
  };
  return said;
}
