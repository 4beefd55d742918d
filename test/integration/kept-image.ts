/** An image that a machine built once, for tests of what is told of it: its rows alone. */
import { randomBytes } from 'node:crypto';
import { Client } from 'pg';
import { builtImageName } from '#shared/domain/built-images.ts';
import type { Platform } from './verbs-fixture.ts';

const DEFINITION = {
  pythonVersion: 'python3.11',
  steps: [
    { title: 'python3.11', text: 'FROM longshore-python:3.11' },
    { title: 'pip install humanize==4.9.0', text: 'RUN pip install humanize==4.9.0' },
  ],
  contextObjectId: '',
  bases: ['longshore-python:3.11'],
};

/** @returns its id, as `image list` shows it */
export async function anImage(platform: Platform): Promise<string> {
  const { servers } = platform;
  if (servers === undefined) throw new Error('an image is written into a database server');
  const hash = randomBytes(16).toString('hex');
  const client = new Client({ connectionString: servers.postgres.url });
  await client.connect();
  try {
    await client.query(
      `insert into images (id, workspace_id, definition, state, built_at) values ($1, $2, $3, 'READY', now())`,
      [builtImageName(hash), platform.own.workspaceId, JSON.stringify(DEFINITION)],
    );
  } finally {
    await client.end();
  }
  return hash;
}
