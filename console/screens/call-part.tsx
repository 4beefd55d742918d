// How a deployment is called: a form where the console may call it, else the command.
import type { DeploymentRecord } from '#shared/api/rest/deployments.ts';
import { mayInvoke } from '../api/session.ts';
import { latestOf } from '../parts/call-lines.ts';
import { curlTo } from '../parts/curl.ts';
import { later } from '../parts/later.tsx';
import { Twin } from '../parts/notices.tsx';
import { word } from '../parts/word.ts';

/** Kinds that are called with JSON. */
const CALLED = ['endpoint', 'taskqueue', 'function', 'schedule'];

/** Kinds that are applications of their own, and take any request. */
const WEB = ['asgi', 'realtime', 'pod'];

const Form = later(async () => (await import('./call-form.tsx')).CallForm);

export function CallPart({ record, home }: { readonly record: DeploymentRecord; readonly home: string }) {
  const [kind = ''] = record.stub_type.split('/', 1);
  if (CALLED.includes(kind) && record.active && mayInvoke(record.workspace_id, record.app_id))
    return <Form record={record} home={home} />;
  // Clients of web applications speak HTTP and WebSocket: `longshore invoke` has nothing for them.
  if (WEB.includes(kind)) return <Twin line={curlTo(latestOf(record.invoke_url, record), 'GET', undefined)} />;
  return <Twin line={`longshore invoke ${word(record.name)}`} />;
}
