// `longshore alerts`: what the scheduler knows to be wrong by itself, and what to do next. For the administrator.
import { ageOf } from '../format.ts';
import { listField, objectField, textField } from '../json.ts';
import { note } from '../print.ts';
import { showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

const HEADINGS = ['SEVERITY', 'RULE', 'ABOUT', 'SINCE', 'TEXT'];

export async function runAlerts(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const alerts = listField(await client.rest('/alerts'), 'data');
    if (alerts.length === 0 && invocation.options.json !== true) {
      note('nothing is wrong that the scheduler knows by itself');
      return;
    }
    showList(invocation, alerts, HEADINGS, (alert) => {
      const subject = objectField(alert, 'subject');
      return [
        textField(alert, 'severity'),
        textField(alert, 'rule'),
        `${textField(subject, 'type')} ${textField(subject, 'name') || textField(subject, 'id')}`.trim(),
        ageOf(textField(alert, 'since'), Date.now()),
        textField(alert, 'text'),
      ];
    });
    if (invocation.options.json === true) return;
    for (const step of new Set(alerts.map((alert) => textField(alert, 'step')))) note(`next: ${step}`);
  });
}
