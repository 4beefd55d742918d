// Parts of a deployment behind lines that open them: they are read when somebody asks.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { may } from '../api/session.ts';
import { later } from '../parts/later.tsx';

const Starts = later(async () => (await import('./starts.tsx')).Starts);
const Series = later(async () => (await import('./series.tsx')).Series);

export function StartsPart({
  workspaceId,
  stubId,
  name,
}: {
  readonly workspaceId: string;
  readonly stubId: string;
  readonly name: string;
}) {
  return (
    <>
      {may('GET /metrics/{ws}/stub-timeseries') ? (
        <Opened summary="Use: CPU, memory and GPUs over time">
          {() => <Series workspaceId={workspaceId} stubId={stubId} name={name} />}
        </Opened>
      ) : null}
      {may('GET /events/{ws}/history') ? (
        <Opened summary="Starts: how long each phase takes">
          {() => <Starts workspaceId={workspaceId} stubId={stubId} />}
        </Opened>
      ) : null}
    </>
  );
}

function Opened({ summary, children }: { readonly summary: string; readonly children: () => ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{summary}</summary>
      {isOpen ? children() : null}
    </details>
  );
}
