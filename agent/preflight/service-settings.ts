/**
 * The settings of the installed service, for checks that somebody runs by hand: systemd gives them to the agent alone.
 * A release that the installer put on this host reads them. A checkout does not, since an installed service may be
 * unrelated to it.
 */
import { fileURLToPath } from 'node:url';
import { StartupError } from '#shared/errors.ts';
import { hasCode, readIfThere } from '../durable.ts';

/** Folders of releases: the installer's, and those of the Debian packages. */
const INSTALLED = ['/opt/longshore/', '/usr/lib/longshore-agent/', '/usr/lib/longshore-scheduler/'];
const FILE = '/etc/longshore-agent/agent.env';
/** The data directory of longshore-agent.service. */
const DATA_DIR = '/var/lib/longshore-agent';

export interface CheckSettings {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The service's file of settings; empty: only the environment has settings. */
  readonly file: string;
}

/**
 * The service's settings; variables of the caller take precedence.
 * @param place - paths of the program and the file, for tests
 * @throws StartupError `settings_not_readable` to a user who may not read the file
 */
export async function checkSettings(
  env: Readonly<Record<string, string | undefined>>,
  { program = fileURLToPath(import.meta.url), file = FILE }: { readonly program?: string; readonly file?: string } = {},
): Promise<CheckSettings> {
  if (!INSTALLED.some((folder) => program.startsWith(folder))) return { env, file: '' };
  let text: string | undefined;
  try {
    text = await readIfThere(file);
  } catch (error) {
    if (!hasCode(error, 'EACCES')) throw error;
    throw new StartupError(
      'settings_not_readable',
      `this user may not read the settings of the service in ${file}: run this as root, with sudo`,
      { cause: error },
    );
  }
  if (text === undefined) return { env, file: '' };
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== undefined && value !== ''));
  return { env: { LONGSHORE_DATA_DIR: DATA_DIR, ...environmentFile(text), ...given }, file };
}

/** Parses lines of an EnvironmentFile like systemd; here a value is on one line. Pure. */
export function environmentFile(text: string): Readonly<Record<string, string>> {
  return Object.fromEntries(
    text.split('\n').flatMap((line) => {
      const [, name, value = ''] = /^([A-Za-z_]\w*)\s*=(.*)$/.exec(line.trim()) ?? [];
      return name === undefined ? [] : [[name, unquoted(value.trim())]];
    }),
  );
}

function unquoted(value: string): string {
  const isIn = (quote: string): boolean => value.length > 1 && value.startsWith(quote) && value.endsWith(quote);
  if (isIn("'")) return value.slice(1, -1);
  if (isIn('"')) return value.slice(1, -1).replaceAll(/\\(["\\`$])/g, '$1');
  return value.replaceAll(/\\(.)/g, '$1');
}
