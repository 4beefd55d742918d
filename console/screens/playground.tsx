// Chats with a model of `/v1`: words as they come, the time to the first token, tokens and price, and the call to copy.
// The conversation is in this page alone: nothing of it is kept.
import { useEffect, useRef, useState } from 'preact/hooks';
import { createParser } from 'eventsource-parser';
import { callThrough, piecesOf } from '../api/calls.ts';
import { ApiError, apiErrorOf } from '../api/client.ts';
import { useResource } from '../live/resource.ts';
import { EXPORT_TOKEN } from '../parts/call-lines.ts';
import { base, curlTo } from '../parts/curl.ts';
import { shownText } from '../parts/hostile.ts';
import { Command, Failure, Shown, Twin } from '../parts/notices.tsx';
import { spanOf } from '../parts/time.ts';
import type { ScreenProps } from './screen.ts';

const MODELS_EVERY_MS = 30_000;
/** Messages of a conversation that the page holds. */
const MOST_MESSAGES = 200;

interface Model {
  readonly id: string;
  readonly name: string;
  readonly type: string;
  readonly status: string;
  readonly pricing: { readonly prompt: string; readonly completion: string; readonly request: string };
}

interface Message {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

interface Figures {
  readonly firstMs: number | undefined;
  readonly tookMs: number;
  readonly tokensIn: number | undefined;
  readonly tokensOut: number | undefined;
}

export function Playground(_props: ScreenProps) {
  const models = useResource('models', readModels, MODELS_EVERY_MS);
  return (
    <>
      <h1>Playground</h1>
      <Shown of={models}>
        {(all) => {
          const chats = all.filter(({ type }) => type === 'chat');
          return chats.length === 0 ? <NoModels /> : <Chat models={chats} />;
        }}
      </Shown>
      <Twin line="longshore model list" />
    </>
  );
}

async function readModels(signal: AbortSignal): Promise<readonly Model[]> {
  const answer = await callThrough('/v1/models', { method: 'GET', signal });
  const said = (await answer.json()) as { readonly data?: readonly Model[]; readonly error?: { message?: string } };
  if (!answer.ok) throw new ApiError(answer.status, said.error ?? {}, answer.headers.get('retry-after'));
  return said.data ?? [];
}

const NoModels = () => (
  <div class="notice">
    <p>No model that chats is in the catalog of this workspace. This adds one of your deployments:</p>
    <Command line="longshore model add NAME --type chat --deployment DEPLOYMENT" />
  </div>
);

function Chat({ models }: { readonly models: readonly Model[] }) {
  const [id, setId] = useState(models[0]?.id ?? '');
  const [system, setSystem] = useState('');
  const [typed, setTyped] = useState('');
  const [sent, setSent] = useState('');
  const [messages, setMessages] = useState<readonly Message[]>([]);
  const [figures, setFigures] = useState<Figures>();
  const [failure, setFailure] = useState<ApiError>();
  const [abort, setAbort] = useState<AbortController>();
  const left = useRef<AbortController | null>(null);
  useEffect(() => () => left.current?.abort(), []);
  const model = models.find((one) => one.id === id) ?? models[0];
  const bodyFor = (said: readonly Message[]): string =>
    JSON.stringify({
      model: model?.id ?? '',
      messages: [...(system === '' ? [] : [{ role: 'system', content: system }]), ...said],
      stream: true,
      stream_options: { include_usage: true },
    });

  const send = async (): Promise<void> => {
    const said: readonly Message[] = [...messages, { role: 'user', content: typed }];
    const begun = new AbortController();
    left.current = begun;
    setAbort(begun);
    setFailure(undefined);
    setFigures(undefined);
    setTyped('');
    setMessages(said);
    const body = bodyFor(said);
    setSent(body);
    try {
      await streamed(body, begun.signal, (answer, now) => {
        setMessages([...said, { role: 'assistant', content: answer }]);
        setFigures(now);
      });
    } catch (error) {
      if (!begun.signal.aborted) setFailure(apiErrorOf(error));
    } finally {
      setAbort(undefined);
    }
  };
  return (
    <>
      <p>
        <label>
          Model{' '}
          <select value={id} onChange={(event) => setId(event.currentTarget.value)}>
            {models.map((one) => (
              <option key={one.id} value={one.id}>
                {shownText(one.name)} ({one.status})
              </option>
            ))}
          </select>
        </label>
      </p>
      <ol class="chat" aria-label="Conversation">
        {messages.map(({ role, content }, at) => (
          <li key={at} class={role}>
            <span class="faint">{role === 'user' ? 'you' : 'model'}</span>
            <p>{shownText(content)}</p>
          </li>
        ))}
      </ol>
      {failure === undefined ? null : <Failure failure={failure} />}
      {figures === undefined ? null : <Numbers of={figures} model={model} isDone={abort === undefined} />}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (typed !== '' && abort === undefined) void send();
        }}
      >
        <div class="fields">
          <details>
            <summary>Instructions</summary>
            <label>
              Instructions for the model
              <textarea value={system} onInput={(event) => setSystem(event.currentTarget.value)} />
            </label>
          </details>
          <label>
            Message
            <textarea
              value={typed}
              autoFocus
              onInput={(event) => setTyped(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
                event.preventDefault();
                event.currentTarget.form?.requestSubmit();
              }}
            />
          </label>
        </div>
        <p class="actions">
          <button type="submit" class="first" disabled={abort !== undefined || messages.length >= MOST_MESSAGES}>
            {abort === undefined ? 'Send' : 'Answering …'}
          </button>
          {abort === undefined ? null : (
            <button type="button" onClick={() => abort.abort()}>
              Stop
            </button>
          )}
          {messages.length === 0 || abort !== undefined ? null : (
            <button
              type="button"
              onClick={() => {
                setMessages([]);
                setSent('');
                setFigures(undefined);
                setFailure(undefined);
              }}
            >
              New conversation
            </button>
          )}
          <span class="faint">Enter sends, Shift with Enter begins a line.</span>
        </p>
      </form>
      <CopyAs
        body={typed === '' && sent !== '' ? sent : bodyFor([...messages, { role: 'user', content: typed || 'Hello' }])}
      />
    </>
  );
}

function Numbers({
  of: { firstMs, tookMs, tokensIn, tokensOut },
  model,
  isDone,
}: {
  readonly of: Figures;
  readonly model: Model | undefined;
  readonly isDone: boolean;
}) {
  const perSecond =
    tokensOut === undefined || tookMs <= (firstMs ?? 0) ? undefined : tokensOut / ((tookMs - (firstMs ?? 0)) / 1000);
  const cost =
    model === undefined || tokensIn === undefined || tokensOut === undefined
      ? 0
      : Number(model.pricing.request) +
        tokensIn * Number(model.pricing.prompt) +
        tokensOut * Number(model.pricing.completion);
  return (
    <div role={isDone ? 'status' : undefined}>
      <dl class="numbers">
        <div>
          <dt>first token after</dt>
          <dd>{firstMs === undefined ? 'none yet' : spanOf(firstMs)}</dd>
        </div>
        <div>
          <dt>{isDone ? 'took' : 'takes'}</dt>
          <dd>{spanOf(tookMs)}</dd>
        </div>
        {tokensIn === undefined ? null : (
          <div>
            <dt>tokens in, out</dt>
            <dd>
              {tokensIn}, {tokensOut}
            </dd>
          </div>
        )}
        {perSecond === undefined ? null : (
          <div>
            <dt>tokens a second</dt>
            <dd>{perSecond.toFixed(1)}</dd>
          </div>
        )}
        {cost === 0 ? null : (
          <div>
            <dt>credits</dt>
            <dd>{cost.toPrecision(3)}</dd>
          </div>
        )}
      </dl>
    </div>
  );
}

interface Chunk {
  readonly choices?: readonly { readonly delta?: { readonly content?: unknown } }[];
  readonly usage?: { readonly prompt_tokens?: unknown; readonly completion_tokens?: unknown } | null;
  readonly error?: { readonly message?: unknown; readonly code?: unknown };
}

/** Calls the model, and tells what has come each time more has. @throws ApiError */
async function streamed(
  body: string,
  signal: AbortSignal,
  tell: (answer: string, figures: Figures) => void,
): Promise<void> {
  const beganMs = performance.now();
  const answer = await callThrough('/v1/chat/completions', { body, signal });
  if (!answer.ok) {
    const said = (await answer.json().catch(() => ({}))) as { readonly error?: { readonly message?: string } };
    throw new ApiError(answer.status, said.error ?? {}, answer.headers.get('retry-after'));
  }
  let text = '';
  let firstMs: number | undefined;
  let tokensIn: number | undefined;
  let tokensOut: number | undefined;
  let problem: ApiError | undefined;
  const parser = createParser({
    onEvent: ({ data }) => {
      if (data === '[DONE]') return;
      const chunk = JSON.parse(data) as Chunk;
      if (chunk.error !== undefined) problem = new ApiError(200, chunk.error);
      const piece = chunk.choices?.[0]?.delta?.content;
      if (typeof piece === 'string' && piece !== '') {
        firstMs ??= performance.now() - beganMs;
        text += piece;
      }
      const { prompt_tokens: prompt, completion_tokens: completion } = chunk.usage ?? {};
      if (typeof prompt === 'number') tokensIn = prompt;
      if (typeof completion === 'number') tokensOut = completion;
    },
  });
  const decoder = new TextDecoder();
  for await (const piece of piecesOf(answer)) {
    parser.feed(decoder.decode(piece, { stream: true }));
    tell(text, { firstMs, tookMs: performance.now() - beganMs, tokensIn, tokensOut });
  }
  if (problem !== undefined) throw problem;
}

function CopyAs({ body }: { readonly body: string }) {
  const { model, messages } = JSON.parse(body) as { readonly model: string; readonly messages: unknown };
  const python = [
    'import os',
    'from openai import OpenAI',
    '',
    `client = OpenAI(base_url=${JSON.stringify(`${base()}/v1`)}, api_key=os.environ["LONGSHORE_TOKEN"])`,
    `for chunk in client.chat.completions.create(`,
    `    model=${JSON.stringify(model)}, messages=${JSON.stringify(messages)}, stream=True`,
    '):',
    '    if chunk.choices:',
    '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
  ].join('\n');
  return (
    <details class="twins">
      <summary>Copy as curl or Python</summary>
      <p>
        <Command line={curlTo(`${base()}/v1/chat/completions`, 'POST', body)} />
      </p>
      <p>
        For Python, with the package <code>openai</code>. First in the shell: <Command line={EXPORT_TOKEN} />
      </p>
      <p>
        <Command line={python} />
      </p>
    </details>
  );
}
