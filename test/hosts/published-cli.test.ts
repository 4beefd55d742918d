// Published app files, deployed by the published command line of `beta9`: the handlers of each file, with its image. An
// index of empty packages stands in for that of pip, so that no image downloads gigabytes. What the client or the
// scheduler says against a file is kept as it is. The checkouts are those of published-examples.test.ts.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { execa } from 'execa';
import { describe, expect } from 'vitest';
import { EmptyPackages } from '../helpers/empty-packages.ts';
import { Platform, test as base } from '../helpers/platform.ts';
import { CHECKOUTS, TABLE, checkouts, publishedFiles, withPublished } from '../helpers/published-examples.ts';
import type { PublishedFile } from '../helpers/published-examples.ts';
import { INSTALL_MS, aPerson } from '../helpers/python-client.ts';
import type { Ran } from '../helpers/python-client.ts';
import { docker } from '../helpers/services.ts';

const STORY_MS = 4 * 3_600_000;
const DEPLOY_MS = 600_000;
/** Packages that authors have on their machines: the one of that other name, and those that their files import. */
const BEAM = 'beam-client==0.2.233';
const LIBRARIES = ['huggingface_hub', 'slack-sdk'];
const REQUIREMENTS = /\.(py|txt|toml)$|Dockerfile/;
/** Lists what of a file the command line can deploy. */
const LIST = `
import importlib, inspect, json, os, sys
sys.path.insert(0, '.')
module = importlib.import_module(sys.argv[1])
print('HANDLERS', json.dumps([name for name, value in vars(module).items()
                              if not inspect.isclass(value) and not name.startswith('_')
                              and callable(getattr(value, 'deploy', None))]), flush=True)
# The client's channels may keep Python from its end.
os._exit(0)
`;
const MISSING_SECRET = /Secret "(\w+)" does not exist/;
const NO_NAME = 'You must specify an app name';
/** Frameworks that the client brings have an end of their own. */
const DEPLOYED = /deployment accepted|Deployed/;

interface Published {
  readonly files: readonly PublishedFile[];
  /** Deploys all handlers of a file. @returns what became of it */
  readonly become: (file: PublishedFile) => Promise<string>;
}

// eslint-disable-next-line no-empty-pattern -- the runner needs the first argument
const test = base.extend('published', { scope: 'file' }, async ({}, { onCleanup }): Promise<Published> => {
  const packages = await EmptyPackages.start();
  const platform = new Platform(await docker(), (daemon) => (daemon === 'agent' ? packages.settings : {}));
  onCleanup(async () => {
    await platform.stop();
    packages.stop();
  });
  await platform.start();
  const copies = join(platform.directory, 'published');
  const files = publishedFiles(checkouts(), copies);
  for (const path of readdirSync(copies, { recursive: true, encoding: 'utf8' }))
    if (REQUIREMENTS.test(path)) packages.add(readFileSync(join(copies, path), 'utf8'));
  return { files, become: await publishedClient(platform) };
});

/** The client with the packages of authors. */
async function publishedClient(platform: Platform): Promise<Published['become']> {
  const { environment, run } = await aPerson(platform);
  const libraries = join(platform.directory, 'libraries');
  const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--target', libraries];
  for (const more of [['--no-deps', BEAM], LIBRARIES])
    await execa(join(environment, 'bin', 'python'), [...pip, ...more], { timeout: INSTALL_MS });
  const env = { PYTHONPATH: libraries, PYTHONDONTWRITEBYTECODE: '1' };
  const within = (file: PublishedFile) => ({ cwd: dirname(file.full), env, timeout: DEPLOY_MS });
  const deploy = async (file: PublishedFile, handler: string): Promise<Ran> => {
    const args = ['--no-input', 'deploy', `${basename(file.full)}:${handler}`];
    const ran = await run('beta9', args, within(file));
    return ran.text.includes(NO_NAME) ? run('beta9', [...args, '--name', 'example'], within(file)) : ran;
  };
  const setMissing = async ({ text }: Ran, known: ReadonlySet<string>): Promise<string | undefined> => {
    const found = MISSING_SECRET.exec(plain(text))?.[1];
    if (found === undefined || known.has(found)) return undefined;
    await platform.call(`/api/v1/secret/${platform.workspaceId}`, { body: { name: found, value: 'bar' } });
    return found;
  };
  /** Deploys a handler, with the secrets that it misses. */
  const deployed = async (file: PublishedFile, handler: string, secrets: Set<string>): Promise<Ran> => {
    for (;;) {
      const ran = await deploy(file, handler);
      const secret = ran.code === 0 ? undefined : await setMissing(ran, secrets);
      if (secret === undefined) return ran;
      secrets.add(secret);
    }
  };
  return async (file) => {
    const listed = await run('python', ['-c', LIST, basename(file.full, '.py')], within(file));
    // A file that cannot be read has its message from the command line itself.
    const found = /^HANDLERS (.*)$/m.exec(listed.text)?.[1];
    const handlers = found === undefined ? ['app'] : (JSON.parse(found) as string[]);
    if (handlers.length === 0) return 'no handler';
    const secrets = new Set<string>();
    try {
      for (const handler of handlers) {
        const ran = await deployed(file, handler, secrets);
        process.stderr.write(`${file.path}:${handler} ${ran.code}\n${ran.code === 0 ? '' : `${ran.text}\n`}`);
        if (ran.code !== 0) return `refused: ${refusalIn(ran)}`;
        expect(ran.text, file.path).toMatch(DEPLOYED);
      }
    } finally {
      await cleared(platform, secrets);
    }
    return secrets.size === 0 ? 'deploys' : `deploys, once there is ${[...secrets].join(', ')}`;
  };
}

/** Removes what the file left, so that the next one finds an empty workspace. */
async function cleared(platform: Platform, secrets: ReadonlySet<string>): Promise<void> {
  const { deployments } = await platform.gateway<{ deployments: readonly { readonly id: string }[] }>('/deployments');
  for (const { id } of deployments)
    expect((await platform.call(`/api/v1/gateway/deployments/${id}`, { method: 'DELETE' })).status).toBe(200);
  for (const name of secrets)
    await platform.call(`/api/v1/secret/${platform.workspaceId}/${name}`, { method: 'DELETE' });
}

const plain = (text: string): string => text.replaceAll(/\s+/g, ' ');

/** Lines of a build with the reason of its end; the output of the step that failed stands behind it. */
const REASON = /^(?:step \d+ of \d+ failed|cannot pull image|no machine) .*$/gm;

/** The text that the client says last of a failure: behind its sign, or the reason within the log of a build. */
function refusalIn({ text }: Ran): string {
  const said = [...text.matchAll(/^✗ (.*(?:\n(?![◆✗✓•=]| *hint:).+)*)/gm)].map(([, one = '']) => one);
  const told = said.filter((one) => !/^(?:Deployment failed|Preparing image)/.test(one)).at(-1) ?? text.slice(-300);
  const reason = told.includes('Image build failed') ? text.match(REASON)?.at(-1) : undefined;
  // Where the packages of this run lie is nobody's business.
  return plain(reason === undefined ? told : `${told.split('\n')[0] ?? ''} ${reason}`).replace(/ \(\/\S+\)$/, '');
}

const isThere = checkouts().length > 0;

describe.skipIf(!isThere)(`published app files (${CHECKOUTS})`, () => {
  test('each is deployed by the published command line', { timeout: STORY_MS }, async ({ published }) => {
    const became = new Map<string, string>();
    for (const file of published.files) {
      const text = await published.become(file);
      expect(text, file.path).not.toMatch(/Traceback|Unhandled|undefined/);
      became.set(file.path, text);
      process.stdout.write(`${file.path}: ${text}\n`);
    }
    const place = process.env[TABLE];
    if (place !== undefined && place !== '') writeFileSync(place, withPublished(readFileSync(place, 'utf8'), became));
  });
});
