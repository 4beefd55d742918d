// Browsers that are signed in by tokens of the workspace. Each can be signed out.
import type { ListedSession } from '#shared/api/rest/session.ts';
import { may } from '../api/session.ts';
import { Action } from '../parts/action.tsx';
import { curlOf } from '../parts/curl.ts';
import { shownText } from '../parts/hostile.ts';
import { Rows, useList } from '../parts/list.tsx';
import { Twin } from '../parts/notices.tsx';
import { agoOf } from '../parts/time.ts';
import type { ScreenProps } from './screen.ts';

export function SessionsPart({ workspace }: ScreenProps) {
  const path = `/console/sessions/${workspace.id}`;
  const list = useList<ListedSession>(path);
  return (
    <>
      <h2>Sessions</h2>
      <p>Browsers that tokens of this workspace signed in. A session ends 12 hours after its last request.</p>
      <Rows of={list} none="No browser is signed in by a token of this workspace." first="longshore console">
        {(session) => (
          <li key={session.id}>
            <strong>{shownText(session.token_name === '' ? session.token_id.slice(0, 8) : session.token_name)}</strong>{' '}
            from {shownText(session.address)}{' '}
            <span class="faint">
              since {agoOf(session.created_at)} · used {agoOf(session.used_at)}
              {session.current ? ' · this browser' : ''}
            </span>
            {may('DELETE /console/sessions/{ws}/{sessionId}') && !session.current ? (
              <span class="actions of-row">
                <Action
                  label="Sign out"
                  question="Sign this browser out?"
                  sure="Sign it out"
                  call={{ method: 'DELETE', path: `${path}/${session.id}` }}
                  line={curlOf({ method: 'DELETE', path: `${path}/${session.id}` })}
                  said={() => <p>It is signed out.</p>}
                  onDone={list.again}
                >
                  <p>Its next request is refused. The token itself goes on counting.</p>
                </Action>
              </span>
            ) : null}
          </li>
        )}
      </Rows>
      <Twin line={curlOf({ method: 'GET', path })} />
    </>
  );
}
