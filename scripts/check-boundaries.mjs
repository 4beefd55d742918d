/**
 * `node scripts/check-boundaries.mjs`: enforces the import rules of CONTRIBUTING.md. The script reads the
 * import lines of every TypeScript file, names each offence with its line, and exits with 1 when there is one.
 * The migrations' numbers are checked too: they collide when two branches meet.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { numberingProblems } from './migration-numbers.mjs';
import { repositoryRoot } from './setup/paths.mjs';

const TOPS = ['agent', 'scheduler', 'shared', 'cli', 'console', 'bench', 'test'];
/** The folders that a top folder may import from, itself apart. `test` and `bench` see everything. */
const MAY_IMPORT = {
  agent: ['shared'],
  scheduler: ['shared'],
  shared: [],
  cli: ['shared', 'agent', 'scheduler'],
  console: ['shared'],
};
/** The one home of each outside library. */
const HOMES = {
  bullmq: ['scheduler/stores/queues/'],
  dockerode: ['agent/containers/engine/'],
  pg: ['scheduler/stores/store/'],
  '@electric-sql/pglite': ['scheduler/stores/store/', 'scheduler/stores/embedded/'],
  '@aws-sdk/client-s3': ['scheduler/stores/objects/s3.ts'],
  '@aws-sdk/s3-request-presigner': ['scheduler/stores/objects/s3.ts'],
  fastify: ['scheduler/api/http/', 'scheduler/main.ts', 'agent/telemetry/'],
};
/** Files that decide: plain data in, plain data out. */
const PURE =
  /^(?:scheduler\/tasks\/lines\/(?:offers|owner|handover)|(?:agent|scheduler)\/.*\/(?:decide|breaker|window|scale-in-hold|state|plan|filter|score|place|choose|precheck|observe|feasibility))\.ts$/;
const IMPORT = /^\s*(?:import|export)\s+(type\s+)?(?:[^'"]*?\s+from\s+)?['"]([^'"]+)['"]/;

/**
 * Rooms from top to bottom: a room imports rooms below it, never above it. A file directly in a top folder belongs to
 * the layer that names it, else to the first layer.
 */
const LAYERS = {
  scheduler: [
    'main.ts',
    'compose',
    'api',
    'control',
    'replicas',
    'fleet',
    'tasks',
    'workspaces',
    'cluster',
    'stores',
    'domain',
    'config.ts',
  ],
  agent: [
    'main.ts',
    'compose',
    'preflight',
    'upstream',
    'reconcile',
    'devices',
    'gateway',
    'transfers',
    'supervisors',
    'builds',
    'slots',
    'images',
    'bases',
    'mounts',
    'volumes',
    'telemetry',
    'code',
    'config.ts',
    'containers',
    ['child.ts', 'control.ts', 'durable.ts', 'grpc-errors.ts', 'heap-growth.ts', 'host-drain.ts', 'proxy.ts'],
  ],
  cli: [
    'main.ts',
    'commands',
    'serve',
    'completion',
    'deploy',
    'transfer',
    'upgrade',
    'up',
    [
      'byte-request.ts',
      'follow.ts',
      'client.ts',
      'explained.ts',
      'context.ts',
      'errors.ts',
      'flags.ts',
      'format.ts',
      'json.ts',
      'lines.ts',
      'colours.ts',
      'near-name.ts',
      'outage.ts',
      'short-id.ts',
      'pages.ts',
      'shared-names.ts',
      'since.ts',
      'print.ts',
      'screen.ts',
      'program-name.ts',
      'reach.ts',
      'command-tree.ts',
      'exit-codes.ts',
      'templates.ts',
      'typed.ts',
    ],
  ],
};

const MIGRATIONS = 'scheduler/stores/store/migrations';

let upward = 0;
const offences = numberingProblems(readdirSync(join(repositoryRoot, MIGRATIONS))).map(
  (problem) => `${MIGRATIONS}/${problem}`,
);
for (const top of TOPS) if (existsSync(join(repositoryRoot, top))) checkFolder(join(repositoryRoot, top));
for (const offence of offences) process.stderr.write(`${offence}\n`);
process.stdout.write(`${upward} upward imports\n`);
process.exitCode = offences.length > 0 ? 1 : 0;

function checkFolder(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (entry.name === 'node_modules' || entry.name === 'generated') continue;
    const path = join(folder, entry.name);
    if (entry.isDirectory()) checkFolder(path);
    else if (/\.tsx?$/.test(entry.name)) checkFile(relative(repositoryRoot, path), readFileSync(path, 'utf8'));
  }
}

function checkFile(file, text) {
  for (const { line, specifier, isType } of importsOf(text)) {
    const why = offence(file, specifier, isType);
    if (why !== undefined) offences.push(`${file}:${line}: ${why}`);
  }
}

/** Import statements, those over several lines too; a statement ends where its quoted source does. */
function* importsOf(text) {
  const lines = text.split('\n');
  for (let at = 0; at < lines.length; at += 1) {
    if (!/^(?:import|export)\b/.test(lines[at] ?? '')) continue;
    const isOpen = /^(?:import|export)\s+(?:type\s+)?\{[^}]*$/.test(lines[at] ?? '');
    let statement = lines[at] ?? '';
    for (let next = at + 1; isOpen && next < lines.length && !statement.includes('}'); next += 1)
      statement += ` ${lines[next]}`;
    const found = IMPORT.exec(statement);
    if (found?.[2] !== undefined) yield { line: at + 1, specifier: found[2], isType: found[1] !== undefined };
  }
}

function offence(file, specifier, isType) {
  const top = topOf(file);
  const target = targetOf(file, specifier);
  if (target === undefined) {
    const home = HOMES[packageOf(specifier)];
    const isHome =
      home === undefined || ['test', 'bench'].includes(top) || home.some((prefix) => file.startsWith(prefix));
    if (!isHome) return `${specifier} is imported in ${home[0]} only`;
    return PURE.test(file) && !isType
      ? `a file that decides imports types and domain/ only, not ${specifier}`
      : undefined;
  }
  const other = topOf(target);
  if (other !== top && specifier.startsWith('.') && top !== 'test' && top !== 'bench')
    return `across top folders import #${target}`;
  const allowed = MAY_IMPORT[top];
  if (allowed !== undefined && other !== top && !allowed.includes(other)) return `${top}/ may not import ${other}/`;
  if (top === 'console' && other === 'shared' && !isType)
    return `console/ imports types of shared/ alone, by import type`;
  if (other === top && layerOf(target) < layerOf(file)) {
    upward += 1;
    return `${layerName(file)} is below ${layerName(target)}, and may not import ${target}`;
  }
  const isVocabulary = target.startsWith('shared/domain/') || target.startsWith('scheduler/domain/');
  if (PURE.test(file) && !isType && !isVocabulary && !PURE.test(target)) {
    return `a file that decides imports types and domain/ only, not ${target}`;
  }
  if (/^scheduler\/api\/(?:http|operations)\//.test(file) && target.startsWith('scheduler/stores/store/') && !isType)
    return `surfaces know services, not ${target}`;
  return undefined;
}

/** Place of a file's room from the top; -1: its top folder has no layers. */
function layerOf(file) {
  const layers = LAYERS[topOf(file)];
  if (layers === undefined) return -1;
  const room = file.split('/')[1] ?? '';
  const at = layers.findIndex((layer) => (Array.isArray(layer) ? layer.includes(room) : layer === room));
  if (at === -1 && !room.endsWith('.ts'))
    offences.push(`${file}: ${topOf(file)}/${room} is not a room: add it to LAYERS`);
  return Math.max(0, at);
}

function layerName(file) {
  const layer = LAYERS[topOf(file)]?.[layerOf(file)] ?? '';
  return `${topOf(file)}/${Array.isArray(layer) ? (file.split('/')[1] ?? '') : layer}`;
}

function topOf(file) {
  return file.split('/')[0] ?? '';
}

function targetOf(file, specifier) {
  if (specifier.startsWith('#')) return specifier.slice(1);
  if (!specifier.startsWith('.')) return undefined;
  return relative(repositoryRoot, resolve(repositoryRoot, dirname(file), specifier));
}

function packageOf(specifier) {
  const parts = specifier.split('/');
  return specifier.startsWith('@') ? parts.slice(0, 2).join('/') : (parts[0] ?? '');
}
