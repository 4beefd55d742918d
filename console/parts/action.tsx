// An action that changes something: a button that asks in a dialog, with the command lines that do the same, and says
// there what came of it. Screens draw an action only when the token may do it.
import { signal } from '@preact/signals';
import { Fragment } from 'preact';
import type { ComponentChildren } from 'preact';
import { useLocation } from 'preact-iso/router';
import { useEffect, useRef, useState } from 'preact/hooks';
import { apiErrorOf, gateway, rest } from '../api/client.ts';
import type { ApiError } from '../api/client.ts';
import { curlOf } from './curl.ts';
import type { Call } from './curl.ts';
import { Command, Failure } from './notices.tsx';

const GATEWAY = '/gateway';

/** Sends a call to the REST API, or to an operation of the gateway. @throws ApiError */
export const perform = <T,>({ method, path, body }: Call): Promise<T> => {
  const sent = { method, ...(body === undefined ? {} : { body }) };
  return path.startsWith(`${GATEWAY}/`) ? gateway<T>(path.slice(GATEWAY.length), sent) : rest<T>(path, sent);
};

export interface QuestionProps<T> {
  /** The question, which is the dialog's heading. */
  readonly question: string;
  /** Text of the button that does it. */
  readonly sure: string;
  /** undefined: a field of the form is missing, so that it cannot be done yet. */
  readonly call: Call | undefined;
  /** Does it by several calls, and tells how far it is. Absent: the call is sent. */
  readonly act?: (tell: (text: string) => void, signal: AbortSignal) => Promise<T>;
  /** The command that does the same; absent: there is none. */
  readonly line?: string;
  /** About the request that does the same. */
  readonly remark?: string;
  /** Says how things are once it is done. */
  readonly said: (answer: T) => ComponentChildren;
  readonly onDone?: (answer: T) => void;
  readonly children?: ComponentChildren;
}

/** The question that is asked. It outlives the row whose button asked it, which may be gone once it is done. */
const asked = signal<ComponentChildren>(null);

/** Asks a question, in the place of one that is open. */
export const ask = (question: ComponentChildren): void => void (asked.value = question);

/** The place of the question in the page. A change of the screen takes it back. */
export function Asked() {
  const { url } = useLocation();
  useEffect(() => () => void (asked.value = null), [url]);
  return <Fragment key={url}>{asked.value}</Fragment>;
}

/** A button that asks. @param children - the question, with its form where it has one */
export function Ask({ label, children }: { readonly label: string; readonly children: () => ComponentChildren }) {
  return (
    <button type="button" onClick={() => ask(children())}>
      {label} …
    </button>
  );
}

/** A button that asks a question without a form. */
export function Action<T = unknown>({ label, ...question }: QuestionProps<T> & { readonly label: string }) {
  return <Ask label={label}>{() => <Question {...question} />}</Ask>;
}

type Stage<T> = { readonly kind: 'asked' | 'sent' } | { readonly kind: 'done'; readonly answer: T };

export function Question<T = unknown>({
  question,
  sure,
  call,
  line,
  remark,
  said,
  onDone,
  act,
  children,
}: QuestionProps<T>) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [stage, setStage] = useState<Stage<T>>({ kind: 'asked' });
  const [failure, setFailure] = useState<ApiError>();
  const [progress, setProgress] = useState('');
  const [leaving] = useState(() => new AbortController());
  useEffect(() => {
    dialog.current?.showModal();
    return () => leaving.abort();
  }, []);
  const run = async (): Promise<void> => {
    if (call === undefined) return;
    setStage({ kind: 'sent' });
    setFailure(undefined);
    try {
      const answer = await (act === undefined ? perform<T>(call) : act(setProgress, leaving.signal));
      setStage({ kind: 'done', answer });
      onDone?.(answer);
    } catch (error) {
      setFailure(apiErrorOf(error));
      setStage({ kind: 'asked' });
    }
  };
  return (
    <dialog ref={dialog} class="question" aria-label={question} onClose={() => void (asked.value = null)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void run();
        }}
      >
        <h2>{question}</h2>
        {stage.kind === 'done' ? (
          <div role="status">{said(stage.answer)}</div>
        ) : (
          <>
            {children}
            {failure === undefined ? null : <Failure failure={failure} />}
            {progress === '' ? null : <p role="status">{progress}</p>}
          </>
        )}
        <p class="actions">
          {stage.kind === 'done' ? null : (
            <button type="submit" class="first" disabled={call === undefined || stage.kind === 'sent'}>
              {sure}
            </button>
          )}
          <button type="button" onClick={() => dialog.current?.close()}>
            {stage.kind === 'done' ? 'Close' : 'Leave it'}
          </button>
        </p>
        {stage.kind === 'done' ? null : <Twins line={line} call={call} remark={remark} />}
      </form>
    </dialog>
  );
}

/** The command and the request that do the same. */
export function Twins({
  line,
  call,
  remark,
}: {
  readonly line?: string | undefined;
  readonly call: Call | undefined;
  readonly remark?: string | undefined;
}) {
  if (line === undefined && call === undefined) return null;
  return (
    <details class="twins">
      <summary>The same in a terminal</summary>
      {line === undefined ? null : (
        <p>
          <Command line={line} />
        </p>
      )}
      {call === undefined ? null : (
        <p>
          <Command line={curlOf(call)} />
        </p>
      )}
      {remark === undefined ? null : <p class="faint">{remark}</p>}
    </details>
  );
}
