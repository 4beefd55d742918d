// Settings of a workspace: tokens, webhooks, limits, and the sessions of browsers. The part is in the address.
import { useLocation } from 'preact-iso/router';
import { queryOf } from '../api/client.ts';
import { may } from '../api/session.ts';
import { isKeyOf } from '../parts/choice.ts';
import { LimitsPart } from './limits.tsx';
import type { ScreenProps } from './screen.ts';
import { SessionsPart } from './sessions.tsx';
import { TokensPart } from './tokens.tsx';
import { WebhooksPart } from './webhooks.tsx';

const PARTS = {
  tokens: { title: 'Tokens', right: 'GET /token/{ws}', Part: TokensPart },
  webhooks: { title: 'Webhooks', right: 'GET /webhook/{ws}', Part: WebhooksPart },
  limits: { title: 'Limits', right: 'GET /workspace/{ws}/limits', Part: LimitsPart },
  sessions: { title: 'Sessions', right: 'GET /console/sessions/{ws}', Part: SessionsPart },
} as const;
type Name = keyof typeof PARTS;

export function Settings(props: ScreenProps) {
  const { query } = useLocation();
  const { part } = query as { readonly part?: string };
  const shown = (Object.keys(PARTS) as Name[]).filter((name) => may(PARTS[name].right));
  const name = isKeyOf(PARTS, part) && shown.includes(part) ? part : shown[0];
  if (name === undefined)
    return (
      <>
        <h1>Settings</h1>
        <p class="notice">This token may see none of the settings: `longshore token list` shows what tokens may do.</p>
      </>
    );
  const { Part } = PARTS[name];
  return (
    <>
      <h1>Settings</h1>
      <nav class="links" aria-label="Settings">
        {shown.map((one) => (
          <a
            key={one}
            href={`${props.home}/settings${queryOf({ part: one })}`}
            {...(one === name ? { 'aria-current': 'page' as const } : {})}
          >
            {PARTS[one].title}
          </a>
        ))}
      </nav>
      <Part {...props} />
    </>
  );
}
