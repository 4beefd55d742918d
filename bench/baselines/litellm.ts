// LiteLLM's proxy as its package installs it, with one model behind it. The version is pinned, and installed once,
// beside set-up's state.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { once } from '../../test/helpers/api-clients.ts';
import { freePort, startProgram, waitFor } from '../../test/helpers/programs.ts';
import type { ChatTarget } from '../token-streams.ts';
import type { Workplace } from '../workplace.ts';

export const LITELLM = '1.108.7';
const INSTALL_MS = 600_000;
const READY_MS = 120_000;
const KEY = 'sk-bench';

/** @param backendUrl - base address of the server behind it, with `/v1` */
export async function startLitellm(place: Workplace, backendUrl: string): Promise<ChatTarget> {
  const venv = await once(`litellm-${LITELLM}`, async (folder) => {
    await execa('python3', ['-m', 'venv', folder], { timeout: INSTALL_MS });
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', `litellm[proxy]==${LITELLM}`];
    await execa(join(folder, 'bin', 'python'), pip, { timeout: INSTALL_MS });
  });
  const directory = join(place.directory, 'litellm');
  await mkdir(directory);
  const config = {
    model_list: [
      { model_name: 'paced', litellm_params: { model: 'openai/paced', api_base: backendUrl, api_key: 'none' } },
    ],
    general_settings: { master_key: KEY },
    litellm_settings: { telemetry: false },
  };
  // JSON is YAML, too.
  const file = join(directory, 'config.yaml');
  await writeFile(file, JSON.stringify(config));
  const port = await freePort();
  const args = ['--config', file, '--host', '127.0.0.1', '--port', String(port)];
  const proxy = await startProgram(join(venv, 'bin', 'litellm'), args, {
    cwd: directory,
    // Nothing is asked elsewhere: prices of models come with the package.
    env: { ...place.env, LITELLM_LOCAL_MODEL_COST_MAP: 'True', LITELLM_LOG: 'ERROR' },
  });
  place.later(() => proxy.end());
  const url = `http://127.0.0.1:${port}`;
  await waitFor(
    async () => {
      if (!proxy.isRunning()) throw new Error(`LiteLLM ended:\n${proxy.output()}`);
      const answer = await fetch(`${url}/health/liveliness`).catch(() => undefined);
      return answer?.ok;
    },
    'LiteLLM answers',
    READY_MS,
  );
  return { url: `${url}/v1`, model: 'paced', token: KEY };
}
