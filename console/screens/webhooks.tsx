// Webhooks of a workspace: made, with the secret shown once, switched off and on, tried, deleted; their deliveries,
// each of which can be sent again.
import { useState } from 'preact/hooks';
import type { DeliveryRecord, WebhookRecord } from '#shared/api/rest/webhooks.ts';
import { may } from '../api/session.ts';
import { Action, Ask, Question } from '../parts/action.tsx';
import { shownLine, shownText } from '../parts/hostile.ts';
import { Rows, useList } from '../parts/list.tsx';
import { Command, Twin } from '../parts/notices.tsx';
import { State } from '../parts/state.tsx';
import { agoOf } from '../parts/time.ts';
import { word } from '../parts/word.ts';
import type { ScreenProps } from './screen.ts';

export function WebhooksPart({ workspace }: ScreenProps) {
  const list = useList<WebhookRecord>(`/webhook/${workspace.id}`);
  return (
    <>
      <h2>Webhooks</h2>
      {may('POST /webhook/{ws}') ? (
        <p class="actions">
          <Ask label="New webhook">{() => <NewWebhook workspaceId={workspace.id} again={list.again} />}</Ask>
        </p>
      ) : null}
      <Rows of={list} none="No events are sent anywhere yet." first="longshore webhook create URL">
        {(webhook) => <Row key={webhook.id} webhook={webhook} workspaceId={workspace.id} again={list.again} />}
      </Rows>
      <Twin line="longshore webhook list" />
    </>
  );
}

function Row({
  webhook,
  workspaceId,
  again,
}: {
  readonly webhook: WebhookRecord;
  readonly workspaceId: string;
  readonly again: () => void;
}) {
  const [isOpen, setOpen] = useState(false);
  const { id, active, last_delivery: last } = webhook;
  const path = `/webhook/${workspaceId}/${id}`;
  return (
    <li>
      <State state={active ? 'ACTIVE' : 'STOPPED'} /> <strong>{shownLine(webhook.url)}</strong>{' '}
      <span class="faint">
        {webhook.event_types.length === 0 ? 'all kinds' : shownText(webhook.event_types.join(', '))}
        {last === null ? ' · nothing sent yet' : ` · last ${last.status_code ?? 'no answer'} ${agoOf(last.at)}`}
        {webhook.inactive_reason === '' ? '' : ` · ${shownText(webhook.inactive_reason)}`}
      </span>
      {last === null || last.error === null ? null : <p class="error">{shownLine(last.error)}</p>}
      <span class="actions of-row">
        {may('PUT /webhook/{ws}/{webhookId}') ? (
          <Action
            label={active ? 'Switch off' : 'Switch on'}
            question={`${active ? 'Switch off' : 'Switch on'} this webhook?`}
            sure={active ? 'Switch it off' : 'Switch it on'}
            call={{ method: 'PUT', path, body: { active: !active } }}
            line={`longshore webhook update ${id} --active ${active ? 'no' : 'yes'}`}
            said={() => <p>It is switched {active ? 'off' : 'on'}.</p>}
            onDone={again}
          >
            <p>{active ? 'Events of the time in which it is off are not sent later.' : 'Events are sent again.'}</p>
          </Action>
        ) : null}
        {may('POST /webhook/{ws}/{webhookId}/test') ? (
          <Action
            label="Try"
            question="Send it an event to try?"
            sure="Send it"
            call={{ method: 'POST', path: `${path}/test`, body: {} }}
            line={`longshore webhook test ${id}`}
            said={() => <p>An event is on its way: see its deliveries.</p>}
            onDone={again}
          />
        ) : null}
        {may('DELETE /webhook/{ws}/{webhookId}') ? (
          <Action
            label="Delete"
            question="Delete this webhook?"
            sure="Delete it"
            call={{ method: 'DELETE', path }}
            line={`longshore webhook delete ${id}`}
            said={() => <p>It is deleted.</p>}
            onDone={again}
          />
        ) : null}
      </span>
      {may('GET /webhook/{ws}/{webhookId}/deliveries') ? (
        <details onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>Deliveries</summary>
          {isOpen ? <Deliveries workspaceId={workspaceId} webhookId={id} /> : null}
        </details>
      ) : null}
    </li>
  );
}

const STATES = { delivered: 'COMPLETE', failed: 'ERROR', waiting: 'PENDING' } as const;

function Deliveries({ workspaceId, webhookId }: { readonly workspaceId: string; readonly webhookId: string }) {
  const path = `/webhook/${workspaceId}/${webhookId}/deliveries`;
  const list = useList<DeliveryRecord>(path);
  return (
    <>
      <Rows of={list} none="Nothing was sent yet." first={`longshore webhook test ${webhookId}`}>
        {(one) => (
          <li key={one.id}>
            <State state={STATES[one.state]} /> {shownText(one.event_type)}{' '}
            <span class="faint">
              {one.status_code === null ? '' : `${one.status_code} · `}
              {one.attempts} tries · {agoOf(one.created_at)}
            </span>
            {one.error === null ? null : <div class="error">{shownLine(one.error)}</div>}
            {may('POST /webhook/{ws}/{webhookId}/deliveries/{deliveryId}/redeliver') ? (
              <span class="actions of-row">
                <Action
                  label="Send again"
                  question={`Send ${shownText(one.event_type)} again?`}
                  sure="Send it again"
                  call={{ method: 'POST', path: `${path}/${one.id}/redeliver`, body: {} }}
                  line={`longshore webhook redeliver ${webhookId} ${one.id}`}
                  said={() => <p>It is on its way.</p>}
                  onDone={list.again}
                />
              </span>
            ) : null}
          </li>
        )}
      </Rows>
      <Twin line={`longshore webhook deliveries ${webhookId}`} />
    </>
  );
}

function NewWebhook({ workspaceId, again }: { readonly workspaceId: string; readonly again: () => void }) {
  const [url, setUrl] = useState('');
  const [types, setTypes] = useState('');
  const kinds = types.split(/[\s,]+/).filter((kind) => kind !== '');
  return (
    <Question<{ readonly secret: string }>
      question="A new webhook"
      sure="Make it"
      call={
        /^https?:\/\/\S+$/.test(url)
          ? { method: 'POST', path: `/webhook/${workspaceId}`, body: { url, event_types: kinds } }
          : undefined
      }
      line={[
        `longshore webhook create ${url === '' ? 'URL' : word(url)}`,
        ...(kinds.length === 0 ? [] : [`--events ${word(kinds.join(','))}`]),
      ].join(' ')}
      said={({ secret }) => (
        <>
          <p>This secret signs what it sends. It is shown this once: copy it now.</p>
          <Command line={secret} />
        </>
      )}
      onDone={again}
    >
      <div class="fields">
        <label>
          Address
          <input
            type="url"
            required
            placeholder="https://example.org/hooks"
            value={url}
            onInput={(event) => setUrl(event.currentTarget.value.trim())}
          />
        </label>
        <label>
          Kinds of events; empty: all
          <input
            placeholder="task.*, deployment.*"
            value={types}
            onInput={(event) => setTypes(event.currentTarget.value)}
          />
        </label>
      </div>
    </Question>
  );
}
