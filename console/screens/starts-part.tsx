// The starts of a deployment, behind a line that opens them: they are read when somebody asks.
import { useState } from 'preact/hooks';
import { may } from '../api/session.ts';
import { later } from '../parts/later.tsx';

const Starts = later(async () => (await import('./starts.tsx')).Starts);

export function StartsPart({ workspaceId, stubId }: { readonly workspaceId: string; readonly stubId: string }) {
  const [isOpen, setOpen] = useState(false);
  if (!may('GET /events/{ws}/history')) return null;
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Starts: how long each phase takes</summary>
      {isOpen ? <Starts workspaceId={workspaceId} stubId={stubId} /> : null}
    </details>
  );
}
