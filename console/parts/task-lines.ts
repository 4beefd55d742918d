// A filter of tasks in words, and as the command that lists the same. Pure.
import { word } from './word.ts';

interface Listed {
  /** Separated by commas; empty: all. */
  readonly statuses: string;
  /** A deployment's; empty: of all. */
  readonly name: string;
  readonly reason: string | undefined;
  readonly since: string | undefined;
}

/** The command that lists the same tasks; undefined: it lacks a filter of these. */
export const listLine = ({ statuses, name, reason = '', since = '' }: Listed): string | undefined =>
  reason !== ''
    ? undefined
    : [
        'longshore task list',
        ...(name === '' ? [] : [`--deployment ${word(name)}`]),
        ...(statuses === '' ? [] : [`--status ${statuses}`]),
        ...(since === '' ? [] : [`--since ${word(since)}`]),
      ].join(' ');

/** Which tasks a change means, as a sentence. */
export function scopeOf(filter: Readonly<Record<string, string | number | undefined>>): string {
  const {
    status = '',
    deployment_name: name = '',
    failure_reasons: reason = '',
    created_at_start: start = '',
  } = filter;
  const of = name === '' ? 'Tasks of all deployments of this workspace' : `Tasks of ${name}, all versions`;
  const states = status === '' ? '' : `, that are ${String(status).replaceAll(',', ' or ')}`;
  const failed = reason === '' ? '' : `, that failed with ${reason}`;
  return `${of}${states}${failed}${start === '' ? '' : `, called since ${start}`}.`;
}
