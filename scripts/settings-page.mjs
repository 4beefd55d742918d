/**
 * Renders docs/settings.md from the schemas by which programs read their settings.
 * `npm run generate` writes the page; a unit test fails when it is out of date.
 */
import { homedir } from 'node:os';

/** Settings of clients. The daemons accept these names and ignore them. */
const CLIENT_SETTINGS = [
  [
    'LONGSHORE_CONTEXT_FILE',
    '`~/.config/longshore/contexts.json`',
    'the installations that commands know, with their tokens',
  ],
  ['LONGSHORE_URL', 'the current context', 'the installation to talk to'],
  ['LONGSHORE_TOKEN', 'that of the context of the installation', 'the token to use'],
  [
    'LONGSHORE_RUN',
    'deployments, where there are any',
    'of Python programs: `file` makes calls run the app file as it is, whatever is deployed',
  ],
];

/** The data directory's default is set where a program starts, so its schema has none. */
const DATA_DIR = '`~/.local/share/longshore`';

/**
 * @param {{ scheduler: { properties: object }, agent: { properties: object }, mounts: { properties: object } }} schemas
 * @returns {string} the whole page
 */
export function settingsPage({ scheduler, agent, mounts }) {
  return `# Settings

Every program reads its settings from the environment when it starts. A variable that is empty counts as absent. A variable that is wrong, or that
begins with \`LONGSHORE_\` and is no setting of any program, ends the start with a sentence for each. A setting marked *secret* may come as a file instead, named by the
same name with \`_FILE\`; it is never printed. \`longshore up\` passes its environment on to the scheduler and the agent that it starts.
A daemon of its own names settings that only another one reads, in a warning at its start. Where services have them: [machines.md](machines.md#what-is-on-the-host), [scheduler-service.md](scheduler-service.md); the file that declares pools: [pools.md](pools.md#pools-by-file).

This page is generated from \`scheduler/config.ts\`, \`agent/config.ts\` and \`agent/mounts/config.ts\` by \`npm run generate\`.

## Scheduler

${table(rowsOf(scheduler))}

## Agent

${table(rowsOf(agent))}

## Mount helper

[volumes.md](volumes.md#the-mount-helper) says what it does.

${table(rowsOf(mounts))}

## Command line and Python clients

${table(CLIENT_SETTINGS)}
`;
}

/** Settings that a unit or a supervisor sets itself. */
const NOT_IN_SAMPLES = new Set(['LONGSHORE_LINK_SOCKET', 'LONGSHORE_REDIS_SOCKET', 'LONGSHORE_JOIN_TOKEN']);
const LINE = 110;

/**
 * A sample environment file of a unit: every setting, commented out, with its meaning and its default there.
 * @param {{ properties: object }} schema
 * @param {{ unit: string, file: string, set: Readonly<Record<string, string>> }} unit
 *   `set`: defaults that the unit replaces
 * @returns {string} the whole file
 */
export function sampleEnvironment({ properties }, { unit, file, set }) {
  const entries = Object.entries(properties).filter(([name]) => !NOT_IN_SAMPLES.has(name));
  const settings = entries.map(([name, property]) => {
    const value = set[name] ?? property.default ?? '';
    const key = property.secret === true ? `${name}_FILE` : name;
    const secret = property.secret === true ? ' (a file of mode 0600 that holds it)' : '';
    const meaning = meaningOf({ ...property, secret: false }).replaceAll('`', '') + secret;
    return `${wrapped(meaning)}\n#${key}=${value}\n`;
  });
  return `# Settings of ${unit}, read from ${file} when it starts. Each is shown with its default.\n\n${settings.join('\n')}`;
}

function wrapped(text) {
  const lines = [''];
  for (const word of text.split(' ')) {
    const last = lines.at(-1) ?? '';
    if (last !== '' && last.length + word.length + 1 > LINE) lines.push(word);
    else lines[lines.length - 1] = last === '' ? word : `${last} ${word}`;
  }
  return lines.map((line) => `# ${line}`).join('\n');
}

/** The units' files, by name. */
export function sampleEnvironments({ scheduler, agent, mounts }) {
  // The unit reads the agent's file, too: settings of both are written once.
  const ownOfMounts = Object.entries(mounts.properties).filter(([name]) => !(name in agent.properties));
  return {
    'agent.env': sampleEnvironment(agent, {
      unit: 'longshore-agent.service',
      file: '/etc/longshore-agent/agent.env',
      set: { LONGSHORE_DATA_DIR: '/var/lib/longshore-agent' },
    }),
    'mounts.env': sampleEnvironment(
      { properties: Object.fromEntries(ownOfMounts) },
      { unit: 'longshore-mounts.service', file: '/etc/longshore-agent/mounts.env', set: {} },
    ),
    'scheduler.env': sampleEnvironment(scheduler, {
      unit: 'longshore-scheduler.service',
      file: '/etc/longshore/scheduler.env',
      set: {
        LONGSHORE_DATA_DIR: '/var/lib/longshore',
        LONGSHORE_HTTP_ADDRESS: '0.0.0.0:1994',
        LONGSHORE_AGENT_ADDRESS: '0.0.0.0:1995',
      },
    }),
  };
}

function rowsOf({ properties }) {
  return Object.entries(properties).map(([name, property]) => [name, defaultOf(name, property), meaningOf(property)]);
}

function defaultOf(name, { default: value }) {
  if (name === 'LONGSHORE_DATA_DIR') return DATA_DIR;
  if (value === undefined) return 'none';
  if (name.endsWith('_BYTES')) return `\`${value}\` (${bytesText(value)})`;
  return `\`${String(value).replace(homedir(), '~')}\``;
}

function bytesText(bytes) {
  const [unit, name] = bytes >= 1024 ** 3 ? [1024 ** 3, 'GiB'] : [1024 ** 2, 'MiB'];
  return `${bytes / unit} ${name}`;
}

function meaningOf({ description, secret, anyOf, minimum, maximum }) {
  const allowed = anyOf?.map((choice) => `\`${choice.const}\``).join(', ');
  const bounds =
    minimum === undefined ? undefined : maximum === undefined ? `at least ${minimum}` : `${minimum} to ${maximum}`;
  return [description, allowed, bounds, secret === true ? '*secret*' : undefined]
    .filter((part) => part !== undefined)
    .join('; ');
}

function table(rows) {
  // A name in angle brackets would count as HTML.
  const cell = (text) => text.replaceAll('|', '\\|').replaceAll(/<[a-z]+>[^\s,;]*/g, '`$&`');
  const lines = rows.map(([name, value, meaning]) => `| \`${name}\` | ${cell(value)} | ${cell(meaning)} |`);
  return ['| Setting | Default | Meaning |', '|---|---|---|', ...lines].join('\n');
}
