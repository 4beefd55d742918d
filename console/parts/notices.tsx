// Sentences in the place of what is not there: a failure with its request id, an empty list with its first commands, a
// skeleton while something is read. And the command that does the same as a screen.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { ApiError } from '../api/client.ts';
import type { Resource } from '../live/resource.ts';
import { clockOf } from './time.ts';
import { Sentence } from './text.tsx';

const SKELETON_MS = 200;
const COPIED_MS = 2_000;

/** A command line that can be copied. */
export function Command({ line }: { readonly line: string }) {
  const [copied, setCopied] = useState<'' | 'Copied' | 'Select the text'>('');
  useEffect(() => {
    if (copied === '') return undefined;
    const timer = setTimeout(() => setCopied(''), COPIED_MS);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = (): void =>
    void navigator.clipboard.writeText(line).then(
      () => setCopied('Copied'),
      // Without HTTPS a browser lets no page write to the clipboard.
      () => setCopied('Select the text'),
    );
  return (
    <span class="command">
      <code tabIndex={0}>{line}</code>
      <button type="button" onClick={copy} aria-label={`Copy ${line}`}>
        {copied === '' ? 'Copy' : copied}
      </button>
    </span>
  );
}

/** The command that shows or does the same. */
export function Twin({ line }: { readonly line: string }) {
  return (
    <p class="twin">
      In a terminal: <Command line={line} />
    </p>
  );
}

export function Skeleton() {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), SKELETON_MS);
    return () => clearTimeout(timer);
  }, []);
  return isLate ? <p class="skeleton">Reading …</p> : null;
}

function stepOf({ status, code, retryAfterSeconds }: ApiError): string {
  if (status === 0) return 'The page dials again by itself. `longshore status` says whether the scheduler is up.';
  if (status === 401) return 'The token lacks this right: `longshore token list` shows what it may do.';
  if (status === 404) return 'It is gone, or its name is misspelt: go back to the list.';
  if (status === 429) return `Too many requests: the page waits ${retryAfterSeconds ?? 1} s and asks again.`;
  if (code === 'draining') return 'The scheduler restarts: the page asks again by itself.';
  if (status === 503) return 'The scheduler waits for its database or queues, and the page asks again by itself.';
  return 'Try again. The request id finds the cause in the log of the scheduler.';
}

export function Failure({ failure, again }: { readonly failure: ApiError; readonly again?: () => void }) {
  return (
    <div class="notice bad" role="alert">
      <p>
        <strong>
          <Sentence text={failure.message} />
        </strong>
      </p>
      <p>
        <Sentence text={stepOf(failure)} />
      </p>
      {failure.requestId === '' ? null : <p class="faint">request {failure.requestId}</p>}
      {again === undefined ? null : (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** A resource on the screen: a skeleton, a failure, or the value with a word on its age where the last try failed. */
export function Shown<T>({
  of,
  children,
}: {
  readonly of: Resource<T>;
  readonly children: (value: T) => ComponentChildren;
}) {
  const { value, failure, atMs, again } = of;
  if (value === undefined) return failure === undefined ? <Skeleton /> : <Failure failure={failure} again={again} />;
  return (
    <>
      {failure === undefined ? null : (
        <p class="notice wait" role="status">
          As of {clockOf(new Date(atMs).toISOString())}: <Sentence text={failure.message} />. The page asks again by
          itself.
        </p>
      )}
      {children(value)}
    </>
  );
}
