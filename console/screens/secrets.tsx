// Secrets by their names. Values go in, and never come out.
import { useState } from 'preact/hooks';
import type { SecretRecord } from '#shared/api/rest/secrets.ts';
import { may } from '../api/session.ts';
import { Action, Ask, Question } from '../parts/action.tsx';
import { shownText } from '../parts/hostile.ts';
import { Rows, useList } from '../parts/list.tsx';
import { Twin } from '../parts/notices.tsx';
import { agoOf } from '../parts/time.ts';
import { word } from '../parts/word.ts';
import type { ScreenProps } from './screen.ts';

const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;

export function Secrets({ workspace }: ScreenProps) {
  const list = useList<SecretRecord>(`/secret/${workspace.id}`);
  return (
    <>
      <h1>Secrets</h1>
      <p>Containers get them as variables. A value never comes back: not here, and not by the API.</p>
      {may('POST /secret/{ws}') ? (
        <p class="actions">
          <Ask label="New secret">{() => <SecretQuestion workspaceId={workspace.id} again={list.again} />}</Ask>
        </p>
      ) : null}
      <Rows of={list} none="This workspace has no secret yet." first="longshore secret set NAME">
        {({ id, name, updated_at: updatedAt }) => (
          <li key={id}>
            <strong>{shownText(name)}</strong> <span class="faint">set {agoOf(updatedAt)}</span>
            <span class="actions of-row">
              {may('PUT /secret/{ws}/{name}') ? (
                <Ask label="Change">
                  {() => <SecretQuestion workspaceId={workspace.id} again={list.again} name={name} />}
                </Ask>
              ) : null}
              {may('DELETE /secret/{ws}/{name}') ? (
                <Action
                  label="Delete"
                  question={`Delete ${shownText(name)}?`}
                  sure="Delete it"
                  call={{ method: 'DELETE', path: `/secret/${workspace.id}/${encodeURIComponent(name)}` }}
                  line={`longshore secret delete ${word(name)}`}
                  said={() => <p>{shownText(name)} is deleted.</p>}
                  onDone={list.again}
                >
                  <p>Containers that run keep it. New ones of apps that name it do not start.</p>
                </Action>
              ) : null}
            </span>
          </li>
        )}
      </Rows>
      <Twin line="longshore secret list" />
    </>
  );
}

/** @param name - of the secret that is changed; absent: a new one */
function SecretQuestion({
  workspaceId,
  again,
  name,
}: {
  readonly workspaceId: string;
  readonly again: () => void;
  readonly name?: string;
}) {
  const [typed, setTyped] = useState('');
  const [value, setValue] = useState('');
  const [isShown, setShown] = useState(false);
  const given = name ?? typed;
  const isReady = NAME.test(given) && value !== '';
  return (
    <Question
      question={name === undefined ? 'A new secret' : `A new value for ${shownText(name)}`}
      sure="Set it"
      call={
        !isReady
          ? undefined
          : name === undefined
            ? { method: 'POST', path: `/secret/${workspaceId}`, body: { name: given, value }, hidden: ['value'] }
            : {
                method: 'PUT',
                path: `/secret/${workspaceId}/${encodeURIComponent(name)}`,
                body: { value },
                hidden: ['value'],
              }
      }
      line={`longshore secret set ${given === '' ? 'NAME' : word(given)}`}
      said={() => <p>{shownText(given)} is set. Containers that start from now on get this value.</p>}
      onDone={again}
    >
      <div class="fields">
        {name === undefined ? (
          <label>
            Name of the variable
            <input
              value={typed}
              required
              autocomplete="off"
              onInput={(event) => setTyped(event.currentTarget.value.trim())}
            />
          </label>
        ) : null}
        <label>
          Value
          <textarea
            class={isShown ? '' : 'masked'}
            value={value}
            required
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setValue(event.currentTarget.value)}
          />
        </label>
      </div>
      <p>
        <label>
          <input type="checkbox" checked={isShown} onChange={(event) => setShown(event.currentTarget.checked)} /> Show
          it
        </label>
      </p>
      {given === '' || NAME.test(given) ? null : (
        <p class="error">A name has letters, digits and underscores, and does not begin with a digit.</p>
      )}
    </Question>
  );
}
