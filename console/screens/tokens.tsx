// Tokens of a workspace: made, with the key shown once, switched off and on, and deleted.
import { useState } from 'preact/hooks';
import type { TokenRecord } from '#shared/api/rest/tokens.ts';
import { may, signedIn } from '../api/session.ts';
import { Action, Ask, Question } from '../parts/action.tsx';
import { shownText } from '../parts/hostile.ts';
import { Rows, useList } from '../parts/list.tsx';
import { Command, Twin } from '../parts/notices.tsx';
import { State } from '../parts/state.tsx';
import { agoOf } from '../parts/time.ts';
import { word } from '../parts/word.ts';
import type { ScreenProps } from './screen.ts';

export function TokensPart({ workspace }: ScreenProps) {
  const list = useList<TokenRecord>(`/token/${workspace.id}`);
  const own = signedIn.value?.facts.token.id;
  return (
    <>
      <h2>Tokens</h2>
      {may('POST /token/{ws}') ? (
        <p class="actions">
          <Ask label="New token">{() => <NewToken workspaceId={workspace.id} again={list.again} />}</Ask>
        </p>
      ) : null}
      <Rows of={list} none="This workspace has no token." first="longshore token create">
        {(token) => (
          <li key={token.id}>
            <State state={token.active ? 'ACTIVE' : 'STOPPED'} />{' '}
            <strong>{shownText(token.name === '' ? token.token_type : token.name)}</strong>{' '}
            <span class="faint">
              {token.token_type}
              {token.scopes.length === 0 ? '' : `, ${token.scopes.join(' and ')} alone`}
              {token.app_id === null ? '' : ', one app'}
              {token.expires_at === null ? '' : ` · until ${token.expires_at.slice(0, 10)}`} ·{' '}
              {token.last_used_at === null ? 'never used' : `used ${agoOf(token.last_used_at)}`}
              {token.id === own ? ' · signed in with it' : ''}
            </span>
            <span class="actions of-row">
              {may('PATCH /token/{ws}/{tokenId}') ? (
                <Action
                  label={token.active ? 'Switch off' : 'Switch on'}
                  question={`${token.active ? 'Switch off' : 'Switch on'} the token ${shownText(token.name)}?`}
                  sure={token.active ? 'Switch it off' : 'Switch it on'}
                  call={{
                    method: 'PATCH',
                    path: `/token/${workspace.id}/${token.id}`,
                    body: { active: !token.active },
                  }}
                  line={`longshore token toggle ${token.id}`}
                  said={() => <p>It is switched {token.active ? 'off' : 'on'}.</p>}
                  onDone={list.again}
                >
                  <p>
                    {token.active
                      ? 'Programs and browsers that use it are refused at once, everywhere.'
                      : 'It counts again, everywhere.'}
                    {token.id === own ? ' This browser is signed in with it, and is signed out.' : ''}
                  </p>
                </Action>
              ) : null}
              {may('DELETE /token/{ws}/{tokenId}') ? (
                <Action
                  label="Delete"
                  question={`Delete the token ${shownText(token.name)}?`}
                  sure="Delete it"
                  call={{ method: 'DELETE', path: `/token/${workspace.id}/${token.id}` }}
                  line={`longshore token delete ${token.id}`}
                  said={() => <p>It is deleted.</p>}
                  onDone={list.again}
                >
                  <p>
                    It never counts again.
                    {token.id === own ? ' This browser is signed in with it, and is signed out.' : ''}
                  </p>
                </Action>
              ) : null}
            </span>
          </li>
        )}
      </Rows>
      <Twin line="longshore token list" />
    </>
  );
}

function NewToken({ workspaceId, again }: { readonly workspaceId: string; readonly again: () => void }) {
  const [name, setName] = useState('');
  const [scope, setScope] = useState('');
  return (
    <Question<TokenRecord>
      question="A new token"
      sure="Make it"
      call={{
        method: 'POST',
        path: `/token/${workspaceId}`,
        body: { ...(name === '' ? {} : { name }), ...(scope === '' ? {} : { scopes: [scope] }) },
      }}
      line={[
        'longshore token create',
        ...(name === '' ? [] : [`--name ${word(name)}`]),
        ...(scope === '' ? [] : [`--scope ${scope}`]),
      ].join(' ')}
      said={({ key }) => (
        <>
          <p>This is its key. It is shown this once: copy it now.</p>
          <Command line={key} />
        </>
      )}
      onDone={again}
    >
      <div class="fields">
        <label>
          Name
          <input value={name} maxLength={100} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label>
          It may
          <select value={scope} onChange={(event) => setScope(event.currentTarget.value)}>
            <option value="">do all that a token of the workspace may</option>
            <option value="invoke">call deployments, and read its own tasks</option>
            <option value="read">read</option>
          </select>
        </label>
      </div>
    </Question>
  );
}
