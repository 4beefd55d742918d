// The client of the published Python package `beta9`, installed from its index, against a whole installation.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { expect } from 'vitest';
import { once } from '../helpers/api-clients.ts';
import { test } from '../helpers/platform.ts';

const VERSION = '0.1.291';
const INSTALL_MS = 300_000;

const PROGRAM = `
import json, os, pathlib, sys, urllib.request
from beta9 import Client
from beta9.exceptions import StubNotFoundError, VolumeUploadError

told = json.loads(sys.argv[1])
client = Client(token=told['token'], gateway_host=told['host'], gateway_port=told['port'])
os.chdir(told['folder'])

def refused(error, call):
    try:
        call()
    except error:
        return True
    return False

def upload(path):
    address = client.upload_file(path)
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read().decode()

task = client.get_deployment_by_stub_id(told['queue']).submit(input={'n': 4, 'text': 'é'})
print(json.dumps({
    'by_stub': client.get_deployment_by_stub_id(told['stub']).submit(input={'n': 2}),
    'by_id': client.get_deployment_by_id(told['id']).submit(input={'n': 3}),
    'waited': task.result(wait=True),
    'later': client.get_task_by_id(task.id).result(),
    'status': str(task.status()),
    'unknown': refused(StubNotFoundError, lambda: client.get_deployment_by_stub_id(told['id'])),
    'uploaded': [upload('input.txt'), upload('some folder/input.txt'), upload(os.path.abspath('input.txt'))],
}))
`;

test(
  'the published client calls stubs and deployments, waits for tasks and uploads files',
  { timeout: 600_000 },
  async ({ platform }) => {
    const environment = await once(`published-client-${VERSION}`, async (directory) => {
      await execa('python3', ['-m', 'venv', directory], { timeout: INSTALL_MS });
      const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check'];
      await execa(join(directory, 'bin', 'python'), [...pip, `beta9==${VERSION}`], { timeout: INSTALL_MS });
    });
    const app = { app: 'published_client.py', handler: 'double' };
    const endpoint = await platform.deploy({ ...app, name: 'double' });
    const queue = await platform.deploy({ ...app, name: 'later', stubType: 'taskqueue/deployment' });
    const folder = join(platform.directory, 'client');
    const { hostname, port } = new URL(platform.url);
    mkdirSync(join(folder, 'some folder'), { recursive: true });
    writeFileSync(join(folder, 'input.txt'), 'one');
    writeFileSync(join(folder, 'some folder', 'input.txt'), 'two');
    const told = {
      token: platform.token,
      host: hostname,
      port: Number(port),
      folder,
      stub: endpoint.stubId,
      id: endpoint.deploymentId,
      queue: queue.stubId,
    };
    const env = { HOME: folder, PATH: process.env['PATH'] ?? '' };
    const python = join(environment, 'bin', 'python');
    const ended = await execa(python, ['-c', PROGRAM, JSON.stringify(told)], {
      env,
      extendEnv: false,
      timeout: 200_000,
    });
    expect(JSON.parse(ended.stdout)).toEqual({
      by_stub: { n: 4, text: '' },
      by_id: { n: 6, text: '' },
      waited: { n: 8, text: 'é' },
      later: { n: 8, text: 'é' },
      status: 'COMPLETE',
      unknown: true,
      uploaded: ['one', 'two', 'one'],
    });
  },
);
