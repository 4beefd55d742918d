// Byte code of the runner and of supervisors: written once by a base image, used by every container with that Python.
import { mkdtemp, readFile, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';
import { expect } from 'vitest';
import { createLog } from '#shared/log.ts';
import { dockerRuntime } from '../../agent/containers/engine/docker.ts';
import { helper } from '../../agent/containers/helpers.ts';
import { PAUSE_IMAGE } from '../../agent/containers/pause-image.ts';
import { PythonBase } from '../../agent/containers/python-base.ts';
import { RunnerCompiler } from '../../agent/containers/runner-compiler.ts';
import { installRunner, pythonSource } from '../../agent/containers/runner-files.ts';
import { LABELS } from '../../agent/containers/runtime.ts';
import type { Mount } from '../../agent/containers/runtime.ts';
import { RUNNER_TARGET } from '../../agent/containers/spec.ts';
import { pythonOfBase } from '../../agent/containers/supervised.ts';
import { test } from '../helpers/services.ts';

/** All modules that a supervisor loads sooner or later. */
const IMPORTS = `
import sys
sys.path.insert(0, '${RUNNER_TARGET}')
import importlib, os
for name in sorted(os.listdir('${RUNNER_TARGET}/longshore/supervisor')):
    if name.endswith('.py'):
        importlib.import_module('longshore.supervisor.' + name[:-3])
`;

test('a supervisor compiles nothing: a base image has compiled, also one that came after the agent began', async ({
  docker,
}) => {
  const runtime = dockerRuntime(process.env['DOCKER_HOST']);
  const dir = await mkdtemp(join(tmpdir(), 'lsc-'));
  const labels = { ...docker.labels, [LABELS.machine]: randomBytes(4).toString('hex') };
  const runnerDir = await installRunner(pythonSource(), dir);
  const log = createLog({ name: 'test', level: 'silent' });
  const compiler = new RunnerCompiler({ runtime, runnerDir, labels: () => labels, log });
  const repo = `ls-test-${randomBytes(6).toString('hex')}`;
  const reference = `${repo}:1`;
  const marks = async (): Promise<string[]> => {
    const names = await readdir(`${runnerDir}.compiled`).catch(() => []);
    return Promise.all(names.map((name) => readFile(join(`${runnerDir}.compiled`, name), 'utf8')));
  };
  const base = new PythonBase({
    runtime,
    image: async () => ({ reference, id: (await runtime.image(reference))?.id ?? '' }),
    runnerDir,
    labels: () => labels,
    onReady: (image) => compiler.want(image),
    log,
  });
  /** Files of ours whose source a supervisor's Python compiles at its start. */
  const compiled = async (mount: Mount): Promise<readonly string[]> => {
    const runner: Mount = { kind: 'bind', target: RUNNER_TARGET, readOnly: true, source: runnerDir };
    const found: string[] = [];
    const spec = helper(PAUSE_IMAGE, [...pythonOfBase, '-v', '-c', IMPORTS], [mount, runner], labels);
    const code = await runtime.runOnce({ ...spec, user: '65534:65534', readOnlyRoot: true }, 60_000, (line) => {
      const [, path] = /^# code object from ['"]?(\/opt\/longshore\/[^'"]*\.py)['"]?$/.exec(line) ?? [];
      if (path !== undefined) found.push(path);
    });
    expect(code).toBe(0);
    return found;
  };
  try {
    compiler.want(reference);
    await compiler.idle();
    expect(await marks()).toEqual([]);
    await docker.client.getImage(docker.baseImage).tag({ repo, tag: '1' });
    // Byte code counts for the source of that time alone.
    const source = join(runnerDir, 'longshore/supervisor/main.py');
    const before = await stat(source);
    const mount = await base.mount();
    await compiler.idle();
    expect(await marks()).toEqual([reference]);
    expect((await stat(source)).mtimeMs).toBe(before.mtimeMs);
    expect(await compiled(mount)).toEqual([]);
    // Without the byte code of one module the same look finds its source.
    const cache = join(runnerDir, 'longshore/supervisor/__pycache__');
    for (const name of await readdir(cache)) if (name.startsWith('loop.')) await rm(join(cache, name));
    expect(await compiled(mount)).toEqual(['/opt/longshore/python/longshore/supervisor/loop.py']);
  } finally {
    for (const name of await runtime.listVolumes(labels)) await runtime.removeVolume(name);
    await docker.client
      .getImage(reference)
      .remove({ force: true })
      .catch(() => undefined);
    await rm(dir, { recursive: true, force: true });
  }
});
