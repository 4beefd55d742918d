// `longshore record`: recordings of placement; for the installation's administrator.
import { shellWord } from '#shared/shell-word.ts';
import { ageOf, bytesOf } from '../format.ts';
import { listField, numberField, textField } from '../json.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { onlyAdmin } from './workspace.ts';

export async function runRecordStart(seconds: number, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const recording = await client.restCall('POST', '/recording', { seconds }).catch(onlyAdmin);
    showDone(invocation, recording, [
      `${textField(recording, 'name')} is being recorded on ${textField(recording, 'host')}: ${textField(recording, 'path')}`,
    ]);
  });
}

export async function runRecordStop(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const recording = await client.restCall('DELETE', '/recording').catch(onlyAdmin);
    const path = textField(recording, 'path');
    showDone(invocation, recording, [
      `${textField(recording, 'name')} ended with ${bytesOf(numberField(recording, 'bytes'))} on ${textField(recording, 'host')}: ${path}`,
      `replay it there: longshore simulate ${shellWord(path)} --check`,
    ]);
  });
}

export async function runRecordList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.rest('/recording').catch(onlyAdmin);
    const nowMs = Date.now();
    showList(invocation, listField(answer, 'data'), ['STATE', 'STARTED', 'SIZE', 'HOST', 'PATH'], (recording) => [
      textField(recording, 'state') === 'recording' ? 'recording' : `ended: ${textField(recording, 'reason')}`,
      `${ageOf(textField(recording, 'started_at'), nowMs)} ago`,
      bytesOf(numberField(recording, 'bytes')),
      textField(recording, 'host'),
      textField(recording, 'path'),
    ]);
  });
}
