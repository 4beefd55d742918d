// Images that were built: their last build with its output, and the machines that have them.
import { useState } from 'preact/hooks';
import type { ImageOutput, ImageRecord } from '#shared/api/rest/images.ts';
import type { Static } from 'typebox';
import { rest } from '../api/client.ts';
import { may } from '../api/session.ts';
import { useResource } from '../live/resource.ts';
import { counted } from '../parts/counted.ts';
import { Action } from '../parts/action.tsx';
import { bytesOf } from '../parts/bytes.ts';
import { shownLine, shownText } from '../parts/hostile.ts';
import { Rows, useList } from '../parts/list.tsx';
import { Shown, Twin } from '../parts/notices.tsx';
import { State } from '../parts/state.tsx';
import { Value } from '../parts/text.tsx';
import { agoOf } from '../parts/time.ts';
import { word } from '../parts/word.ts';
import type { ScreenProps } from './screen.ts';

type Image = Static<typeof ImageRecord>;
const OUTPUT_EVERY_MS = 3_000;

export function Images({ workspace }: ScreenProps) {
  const list = useList<Image>(`/image/${workspace.id}`);
  return (
    <>
      <h1>Images</h1>
      <Rows
        of={list}
        none="No image was built for this workspace: an app with python_packages, or commands, builds one."
        first="longshore deploy app.py"
      >
        {(image) => <Row key={image.id} image={image} workspaceId={workspace.id} again={list.again} />}
      </Rows>
      <Twin line="longshore image list" />
    </>
  );
}

function Row({
  image,
  workspaceId,
  again,
}: {
  readonly image: Image;
  readonly workspaceId: string;
  readonly again: () => void;
}) {
  const [isOpen, setOpen] = useState(false);
  const [largest = 0] = image.machines.map(({ size_bytes: bytes }) => bytes).toSorted((a, b) => b - a);
  return (
    <li>
      <State state={image.state} /> <code>{shownText(image.name)}</code>{' '}
      <span class="faint">
        Python {shownText(image.python_version)} · {counted(image.machines.length, 'machine')}
        {largest === 0 ? '' : ` · ${bytesOf(largest)}`} · used {agoOf(image.used_at)}
      </span>
      {image.error === '' ? null : <p class="error">{shownLine(image.error)}</p>}
      {image.registry.error === '' ? null : <p class="error">The registry: {shownLine(image.registry.error)}</p>}
      {image.steps.length === 0 ? null : (
        <details>
          <summary>{image.steps.length} steps</summary>
          <Value text={image.steps.join('\n')} label="Steps" />
        </details>
      )}
      {may('GET /image/{ws}/{imageId}/output') ? (
        <details onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>Output of its last build</summary>
          {isOpen ? <Output image={image} workspaceId={workspaceId} /> : null}
        </details>
      ) : null}
      <span class="actions of-row">
        {may('DELETE /image/{ws}/{imageId}') ? (
          <Action
            label="Delete"
            question={`Delete the image ${shownText(image.name)}?`}
            sure="Delete it"
            call={{ method: 'DELETE', path: `/image/${workspaceId}/${encodeURIComponent(image.id)}` }}
            line={`longshore image delete ${word(image.id)}`}
            said={() => <p>The image is deleted. The next deploy that needs it builds it again.</p>}
            onDone={again}
          />
        ) : null}
      </span>
    </li>
  );
}

function Output({ image, workspaceId }: { readonly image: Image; readonly workspaceId: string }) {
  const path = `/image/${workspaceId}/${encodeURIComponent(image.id)}/output`;
  const isBuilding = image.state === 'PENDING' || image.state === 'BUILDING';
  const output = useResource(
    `${path} ${image.state}`,
    (signal) => rest<Static<typeof ImageOutput>>(path, { signal }),
    isBuilding ? OUTPUT_EVERY_MS : 0,
  );
  return (
    <Shown of={output}>
      {({ output: text }) => (text === '' ? <p>It printed nothing.</p> : <Value text={text} label="Output" />)}
    </Shown>
  );
}
