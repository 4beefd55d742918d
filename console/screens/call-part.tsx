// How a deployment is called: a form where the console may call it, else the command.
import type { DeploymentRecord } from '#shared/api/rest/deployments.ts';
import { mayInvoke } from '../api/session.ts';
import { later } from '../parts/later.tsx';
import { Twin } from '../parts/notices.tsx';
import { word } from '../parts/word.ts';

/** Kinds that are called with JSON. */
const CALLED = ['endpoint', 'taskqueue', 'function', 'schedule'];

const Form = later(async () => (await import('./call-form.tsx')).CallForm);

export function CallPart({ record, home }: { readonly record: DeploymentRecord; readonly home: string }) {
  const isCalled = CALLED.includes(record.stub_type.split('/', 1)[0] ?? '');
  if (isCalled && record.active && mayInvoke(record.workspace_id, record.app_id))
    return <Form record={record} home={home} />;
  return <Twin line={`longshore invoke ${word(record.name)}`} />;
}
