// Calls a deployment by a form: fields where its stub declares inputs, else JSON. Shows what came, whether a container
// had to start for it, and the same call to copy.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { DeploymentRecord } from '#shared/api/rest/deployments.ts';
import type { RestTask } from '#shared/api/rest/tasks.ts';
import { callThrough, piecesOf } from '../api/calls.ts';
import type { ApiError } from '../api/client.ts';
import { apiErrorOf, rest } from '../api/client.ts';
import { explain } from '../api/explain.ts';
import { may } from '../api/session.ts';
import { AnswerValue } from '../parts/answer.tsx';
import type { Bytes } from '../parts/answer.tsx';
import { EXPORT_TOKEN, fieldsOf, inputOf, invokeLine, latestOf, problemOf, pythonCall } from '../parts/call-lines.ts';
import type { Field } from '../parts/call-lines.ts';
import { curlTo } from '../parts/curl.ts';
import { shownText } from '../parts/hostile.ts';
import { Command, Failure } from '../parts/notices.tsx';
import { spanOf } from '../parts/time.ts';

interface Props {
  readonly record: DeploymentRecord;
  readonly home: string;
}

/** Tasks that are looked at until it is known where they ran. */
const LOOKS = 20;
const LOOK_EVERY_MS = 500;

interface Came {
  readonly status: number;
  readonly taskId: string;
  readonly tookMs: number;
  readonly bytes: Bytes;
  readonly isWhole: boolean;
}

export function CallForm({ record, home }: Props) {
  const fields = fieldsOf(record.stub?.config ?? '');
  const [isJson, setJson] = useState(fields === undefined);
  const [typed, setTyped] = useState<Readonly<Record<string, string>>>({});
  const [text, setText] = useState('{}');
  const [isTouched, setTouched] = useState(false);
  const [came, setCame] = useState<Came>();
  const [failure, setFailure] = useState<ApiError>();
  const [abort, setAbort] = useState<AbortController>();
  const left = useRef<AbortController | null>(null);
  useEffect(() => () => left.current?.abort(), []);

  const read = isJson || fields === undefined ? undefined : inputOf(fields, typed);
  const problem = read === undefined ? problemOf(text) : 'why' in read ? `${read.field} ${read.why}` : '';
  const json = read === undefined ? (text.trim() === '' ? '{}' : text) : 'json' in read ? read.json : '{}';
  const [kind = ''] = record.stub_type.split('/', 1);

  /** An answer belongs to the input that it was made of. */
  const changed = (): void => {
    setTouched(true);
    setCame(undefined);
    setFailure(undefined);
  };
  const call = async (): Promise<void> => {
    const begun = new AbortController();
    left.current = begun;
    setAbort(begun);
    setFailure(undefined);
    setCame(undefined);
    const beganMs = performance.now();
    try {
      const path = `/${kind}/${encodeURIComponent(record.name)}/v${record.version}`;
      const answer = await callThrough(path, { body: json, signal: begun.signal });
      const parts: Uint8Array<ArrayBuffer>[] = [];
      const show = (isWhole: boolean): void =>
        setCame({
          status: answer.status,
          taskId: answer.headers.get('x-task-id') ?? '',
          tookMs: performance.now() - beganMs,
          bytes: { type: answer.headers.get('content-type') ?? '', parts: [...parts] },
          isWhole,
        });
      let shownMs = 0;
      for await (const piece of piecesOf(answer)) {
        parts.push(piece);
        if (performance.now() - shownMs < 100) continue;
        shownMs = performance.now();
        show(false);
      }
      show(true);
    } catch (error) {
      if (!begun.signal.aborted) setFailure(apiErrorOf(error));
    } finally {
      setAbort(undefined);
    }
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        setTouched(true);
        if (problem === '') void call();
      }}
    >
      <div class="fields">
        {isJson || fields === undefined ? (
          <label>
            Input, as a JSON object
            <textarea
              value={text}
              spellcheck={false}
              onInput={(event) => {
                setText(event.currentTarget.value);
                changed();
              }}
            />
          </label>
        ) : (
          fields.map((field) => (
            <FieldInput
              key={field.name}
              of={field}
              value={typed[field.name] ?? ''}
              onInput={(value) => {
                setTyped((before) => ({ ...before, [field.name]: value }));
                changed();
              }}
            />
          ))
        )}
      </div>
      {isJson || fields === undefined ? null : <p class="faint">Every field is needed.</p>}
      {problem === '' || !isTouched ? null : <p class="error">{shownText(problem)}</p>}
      <p class="actions">
        <button type="submit" class="first" disabled={(isTouched && problem !== '') || abort !== undefined}>
          {abort === undefined ? 'Call' : 'Calling …'}
        </button>
        {abort === undefined ? null : (
          <button type="button" onClick={() => abort.abort()}>
            Leave the call
          </button>
        )}
        {fields === undefined ? null : (
          <button
            type="button"
            aria-pressed={isJson}
            onClick={() => {
              if (!isJson) setText(json);
              setJson(!isJson);
            }}
          >
            As JSON
          </button>
        )}
      </p>
      {failure === undefined ? null : <Failure failure={failure} />}
      {came === undefined ? null : <Outcome of={came} record={record} home={home} />}
      <CopyAs record={record} kind={kind} json={problem === '' ? json : '{}'} />
    </form>
  );
}

function FieldInput({
  of: { name, type },
  value,
  onInput,
}: {
  readonly of: Field;
  readonly value: string;
  readonly onInput: (value: string) => void;
}) {
  const kind = type.toLowerCase();
  const hint =
    kind === 'string'
      ? ''
      : kind === 'integer'
        ? ' (a whole number)'
        : kind === 'file' || kind === 'image'
          ? ' (an address, or base64)'
          : ' (JSON)';
  const typed = (event: { readonly currentTarget: { readonly value: string } }): void =>
    onInput(event.currentTarget.value);
  return (
    <label>
      {shownText(name)}
      {hint}
      {kind === 'string' || kind === 'file' || kind === 'image' ? (
        <input value={value} onInput={typed} />
      ) : kind === 'integer' ? (
        <input type="number" step="1" value={value} onInput={typed} />
      ) : (
        <textarea value={value} spellcheck={false} onInput={typed} />
      )}
    </label>
  );
}

function Outcome({
  of,
  record,
  home,
}: {
  readonly of: Came;
  readonly record: DeploymentRecord;
  readonly home: string;
}) {
  const { status, tookMs, bytes, isWhole } = of;
  const taskId = of.taskId !== '' ? of.taskId : taskIdIn(bytes);
  return (
    <section class="outcome" aria-label="What came">
      <p role="status">
        {isWhole ? (status < 400 ? 'Answered' : `Failed with ${status}`) : 'Answering'} after {spanOf(tookMs)}.
        {taskId === '' ? null : (
          <>
            {' '}
            Task <a href={`${home}/tasks/${taskId}`}>{taskId.slice(0, 8)}</a>
            {isWhole ? <Warmth taskId={taskId} workspaceId={record.workspace_id} /> : null}
          </>
        )}
      </p>
      <AnswerValue of={bytes} label="Answer" />
    </section>
  );
}

/** The id that a queued call is answered with. */
function taskIdIn({ type, parts }: Bytes): string {
  if (!type.startsWith('application/json') || parts.length !== 1 || (parts[0]?.byteLength ?? 0) > 1_000) return '';
  try {
    const { task_id: id } = JSON.parse(new TextDecoder().decode(parts[0])) as { readonly task_id?: unknown };
    return typeof id === 'string' && /^[0-9a-f-]{36}$/.test(id) ? id : '';
  } catch {
    return '';
  }
}

/** Says whether a container had to start for a task. */
function Warmth({ taskId, workspaceId }: { readonly taskId: string; readonly workspaceId: string }) {
  const [text, setText] = useState('');
  useEffect(() => {
    if (!may('GET /task/{ws}/{taskId}') || !may('GET /explain/{ws}/{id}')) return undefined;
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async (left: number): Promise<void> => {
      const found = await warmthOf(workspaceId, taskId, abort.signal).catch(() => undefined);
      if (abort.signal.aborted) return;
      if (found !== undefined) setText(found);
      else if (left > 0) timer = setTimeout(() => void look(left - 1), LOOK_EVERY_MS);
    };
    void look(LOOKS);
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [taskId]);
  return text === '' ? null : <> · {text}</>;
}

/** @returns undefined: not known yet */
async function warmthOf(workspaceId: string, taskId: string, signal: AbortSignal): Promise<string | undefined> {
  const task = await rest<RestTask>(`/task/${workspaceId}/${taskId}`, { signal });
  if (task.container_id === '' || task.started_at === null) return undefined;
  const waited = spanOf(Date.parse(task.started_at) - Date.parse(task.created_at));
  const { container } = await explain(workspaceId, task.container_id, signal);
  if (container === null || container.started_at === null) return undefined;
  return Date.parse(container.started_at) > Date.parse(task.created_at)
    ? `cold: a container started for it, and it waited ${waited}`
    : `warm: it waited ${waited}`;
}

function CopyAs({
  record,
  kind,
  json,
}: {
  readonly record: DeploymentRecord;
  readonly kind: string;
  readonly json: string;
}) {
  const [isPinned, setPinned] = useState(false);
  const url = isPinned ? record.invoke_url : latestOf(record.invoke_url, record);
  return (
    <details class="twins">
      <summary>Copy as curl, Python or command</summary>
      <p>
        <label>
          <input type="checkbox" checked={isPinned} onChange={(event) => setPinned(event.currentTarget.checked)} /> v
          {record.version} alone, also after the next deploy
        </label>
      </p>
      <p>
        <Command line={curlTo(url, 'POST', json)} />
      </p>
      <p>
        <Command line={invokeLine({ name: record.name, version: isPinned ? record.version : undefined, kind }, json)} />
      </p>
      <p>
        For Python, with the package <code>requests</code>. First in the shell: <Command line={EXPORT_TOKEN} />
      </p>
      <p>
        <Command line={pythonCall(url, json)} />
      </p>
    </details>
  );
}
