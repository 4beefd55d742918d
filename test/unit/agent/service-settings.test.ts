// Checks that are run by hand have the settings of the installed service.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { checkSettings, environmentFile } from '../../../agent/preflight/service-settings.ts';
import { tempDirectory } from '../../helpers/programs.ts';

const PROGRAM = '/opt/longshore/releases/9-0123456789ab/lib/main.mjs';

test('lines are read as systemd reads them', () => {
  const text = String.raw`# LONGSHORE_A=no
; LONGSHORE_A=no
LONGSHORE_B= bare \"word\"  
LONGSHORE_C='it is \ "so"'
LONGSHORE_D="a \"b\" \$c \d"
  LONGSHORE_E=
LONGSHORE_B2="
no setting
LONGSHORE_E=last
`;
  expect(environmentFile(text)).toEqual({
    LONGSHORE_B: 'bare "word"',
    LONGSHORE_C: String.raw`it is \ "so"`,
    LONGSHORE_D: String.raw`a "b" $c \d`,
    LONGSHORE_B2: '"',
    LONGSHORE_E: 'last',
  });
});

test('an installed release has them, the caller before them, and a checkout does not', async () => {
  const directory = tempDirectory('settings');
  onTestFinished(() => directory.remove());
  const file = join(directory.path, 'agent.env');
  const env = { PATH: '/bin', LONGSHORE_NVIDIA_SMI: '/opt/nvidia-smi', LONGSHORE_EXCLUDED_GPUS: '' };
  expect(await checkSettings(env, { program: PROGRAM, file })).toEqual({ env, file: '' });
  writeFileSync(file, 'LONGSHORE_EXCLUDED_GPUS=GPU-1\nLONGSHORE_NVIDIA_SMI=nvidia-smi\n');
  expect(await checkSettings(env, { program: '/home/me/longshore/agent/x.ts', file })).toEqual({ env, file: '' });
  expect(await checkSettings(env, { program: PROGRAM, file })).toEqual({
    env: {
      PATH: '/bin',
      LONGSHORE_DATA_DIR: '/var/lib/longshore-agent',
      LONGSHORE_EXCLUDED_GPUS: 'GPU-1',
      LONGSHORE_NVIDIA_SMI: '/opt/nvidia-smi',
    },
    file,
  });
});
