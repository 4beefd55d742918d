// `longshore console`: a link that signs a browser in to the web console, once. Where this machine has a screen, the
// link is opened; elsewhere the line that brings the console to a machine with one is printed beside it.
import { spawn } from 'node:child_process';
import { hostname, userInfo } from 'node:os';
import type { ConsoleFlags } from '../flags.ts';
import { textField } from '../json.ts';
import { note, print, printJson } from '../print.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';

type Env = Readonly<Record<string, string | undefined>>;

export async function runConsole(flags: ConsoleFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const link = await client.restCall('POST', '/console/link');
    const url = textField(link, 'url');
    if (invocation.options.json === true) return printJson(link);
    const opener = flags.open === false ? undefined : openerOf(process.platform, invocation.env);
    if (opener !== undefined) await open(opener, url);
    print(url);
    note('The link signs one browser in, within 10 minutes.');
    const line = opener === undefined ? sshLine(url) : undefined;
    if (line !== undefined) note(`From another machine, first: ${line}`);
  });
}

/** The program that opens addresses here; undefined: there is no screen. @internal exported for its test */
export function openerOf(platform: NodeJS.Platform, env: Env): string | undefined {
  if (env['SSH_CONNECTION'] !== undefined) return undefined;
  if (platform === 'darwin') return 'open';
  const hasScreen = Boolean(env['DISPLAY']) || Boolean(env['WAYLAND_DISPLAY']);
  return platform === 'linux' && hasScreen ? 'xdg-open' : undefined;
}

/** The line that brings a console on loopback to another machine; undefined: it is reached without. */
export function sshLine(url: string, host = hostname(), user = userInfo().username): string | undefined {
  const { hostname: name, port } = new URL(url);
  if (!/^(?:127\..*|localhost|\[::1\])$/.test(name)) return undefined;
  return `ssh -L ${port}:${name}:${port} ${user}@${host}`;
}

/** Opens an address; that it cannot be opened is no failure, because the address is printed, too. */
function open(program: string, url: string): Promise<void> {
  return new Promise((resolve) => {
    const child = spawn(program, [url], { stdio: 'ignore', detached: true });
    child.once('error', () => resolve());
    child.once('spawn', () => {
      child.unref();
      resolve();
    });
  });
}
