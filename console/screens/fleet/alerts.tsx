// Alerts that the scheduler knows by itself: each with its subject, since when, and the next step.
import type { AlertList, AlertRecord } from '#shared/api/rest/alerts.ts';
import { queryOf, rest, root } from '../../api/client.ts';
import { useResource } from '../../live/resource.ts';
import { counted } from '../../parts/counted.ts';
import { commandsIn, shownText } from '../../parts/hostile.ts';
import { Command, Shown, Twin } from '../../parts/notices.tsx';
import { Sentence } from '../../parts/text.tsx';
import { agoOf } from '../../parts/time.ts';

const EVERY_MS = 5_000;

export function Alerts() {
  const list = useResource('alerts', (signal) => rest<AlertList>('/alerts', { signal }), EVERY_MS);
  return (
    <>
      <h1>Alerts</h1>
      <Shown of={list}>
        {({ data, total }) =>
          data.length === 0 ? (
            <p class="notice">Nothing is wrong that the scheduler knows by itself. Prometheus has more rules.</p>
          ) : (
            <>
              <p class="summary">{counted(total, 'alert')}</p>
              <ul class="rows">
                {data.map((alert) => (
                  <Row key={`${alert.rule} ${alert.subject.id} ${alert.text}`} alert={alert} />
                ))}
              </ul>
            </>
          )
        }
      </Shown>
      <Twin line="longshore alerts" />
    </>
  );
}

function placeOf({ subject: { type, id } }: AlertRecord): string | undefined {
  if (type === 'machine') return `${root}/fleet/machines/${encodeURIComponent(id)}`;
  if (type === 'gpu') return `${root}/fleet/gpus`;
  if (type === 'pool') return `${root}/fleet/gpus${queryOf({ pool: id })}`;
  return type === 'deployment' ? `${root}/fleet/waiting` : undefined;
}

function Row({ alert }: { readonly alert: AlertRecord }) {
  const { severity, rule, subject, text, step, since } = alert;
  const href = placeOf(alert);
  const name = shownText(subject.name === '' ? subject.id : subject.name);
  return (
    <li>
      <p>
        <span class={`state ${severity === 'critical' ? 'bad' : 'wait'}`}>
          <span aria-hidden="true">{severity === 'critical' ? '✕ ' : '◐ '}</span>
          {severity}
        </span>{' '}
        <strong>{shownText(rule)}</strong> {subject.type} {href === undefined ? name : <a href={href}>{name}</a>}{' '}
        <span class="faint">{since === null ? '' : `since ${agoOf(since)}`}</span>
      </p>
      <p>
        <Sentence text={text} />
      </p>
      <p>
        Next: <Sentence text={step} />{' '}
        {commandsIn(step).map((line) => (
          <Command key={line} line={line} />
        ))}
      </p>
    </li>
  );
}
