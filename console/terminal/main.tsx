// The terminal: a document of its own with a shell of one container. Its address is `/console/terminal/WORKSPACE/ID`.
// Invariant: output is inert. It sets no title, opens no link, and reaches no clipboard.
import { Terminal } from '@xterm/xterm';
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { root } from '../api/client.ts';
import { shownText } from '../parts/hostile.ts';
import { Twin } from '../parts/notices.tsx';
import { Sentence } from '../parts/text.tsx';
import '../parts/theme.ts';
import { word } from '../parts/word.ts';
import { Link } from './link.ts';
import type { Told } from './link.ts';

const LINES_KEPT = 5_000;
const NARROWEST = { rows: 4, columns: 20 };
/** Sequences for the title, links and the clipboard, which output may not use. */
const SWALLOWED = [0, 1, 2, 8, 52] as const;

function Page({ workspace, id }: { readonly workspace: string; readonly id: string }) {
  const place = useRef<HTMLDivElement>(null);
  const leave = useRef<HTMLButtonElement>(null);
  const [told, setTold] = useState<Told>({ kind: 'dialling' });
  const [lostBytes, setLostBytes] = useState(0);
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (place.current === null) return undefined;
    return open(place.current, id, {
      tell: (one) => (one.kind === 'lost' ? setLostBytes((sum) => sum + one.bytes) : setTold(one)),
      out: () => leave.current?.focus(),
    });
  }, [round]);
  const isOver = told.kind === 'ended' || told.kind === 'refused';
  const again = (): void => {
    setLostBytes(0);
    setTold({ kind: 'dialling' });
    setRound(round + 1);
  };
  return (
    <main id="main" class="terminal">
      <header>
        <h1>
          Terminal in <code>{shownText(id)}</code>
        </h1>
        <p class={`notice ${isOver ? 'bad' : told.kind === 'again' ? 'wait' : ''}`} role="status">
          <Sentence text={sentenceOf(told)} />
          {lostBytes === 0 ? '' : ` ${lostBytes} bytes of output were left out, because they came too fast.`}
        </p>
        <p class="actions">
          {isOver && !(told.kind === 'refused' && told.isOver) ? (
            <button type="button" onClick={again}>
              Open another shell
            </button>
          ) : null}
          <button type="button" ref={leave} onClick={() => place.current?.querySelector('textarea')?.focus()}>
            Type in the terminal
          </button>
          <a href={`${root}/w/${encodeURIComponent(workspace)}/containers`}>Containers</a>
        </p>
      </header>
      <div class="shell" ref={place} />
      <Twin line={`longshore container shell ${word(id)}`} />
    </main>
  );
}

function sentenceOf(told: Told): string {
  switch (told.kind) {
    case 'dialling':
      return 'Opening a shell …';
    case 'again':
      return 'The connection was lost, and the page dials again. The shell goes on for 5 minutes.';
    case 'ended':
      return told.signal === ''
        ? `The shell ended with exit code ${told.exitCode}.`
        : `The shell was ended by SIG${told.signal.replace(/^SIG/, '')}.`;
    case 'refused':
      return told.isOver
        ? `The terminal is over: ${told.message}. Sign in again, or use a token that may open shells.`
        : `The terminal is over: ${told.message}.`;
    default:
      return 'Connected. Shift F6 leads out of the terminal, and closing the page ends the shell.';
  }
}

/** Opens a shell at a place of the page. @returns a function that ends it */
function open(
  place: HTMLElement,
  containerId: string,
  { tell, out }: { readonly tell: (told: Told) => void; readonly out: () => void },
): () => void {
  const { backgroundColor, color, fontFamily } = getComputedStyle(place);
  const terminal = new Terminal({
    scrollback: LINES_KEPT,
    fontFamily,
    fontSize: 14,
    cursorBlink: false,
    // Colours of programs are made for dark screens.
    minimumContrastRatio: 4.5,
    theme: { background: backgroundColor, foreground: color, cursor: color, selectionBackground: '#7a9cd0' },
    linkHandler: { activate: () => undefined },
  });
  for (const code of SWALLOWED) terminal.parser.registerOscHandler(code, () => true);
  terminal.open(place);
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.key !== 'F6' || !event.shiftKey) return true;
    if (event.type === 'keydown') out();
    event.preventDefault();
    return false;
  });
  const size = () => ({ rows: terminal.rows, columns: terminal.cols });
  const fit = (): void => {
    const screen = place.querySelector<HTMLElement>('.xterm-screen');
    if (screen === null || screen.clientWidth === 0) return;
    const room = { width: place.clientWidth - 16, height: place.clientHeight };
    const columns = Math.floor(room.width / (screen.clientWidth / terminal.cols));
    const rows = Math.floor(room.height / (screen.clientHeight / terminal.rows));
    terminal.resize(Math.max(NARROWEST.columns, columns), Math.max(NARROWEST.rows, rows));
  };
  fit();
  const link = new Link({
    containerId,
    size,
    draw: (bytes, drawn) => terminal.write(bytes, drawn),
    tell: (told) => {
      if (told.kind === 'ended' || told.kind === 'refused') terminal.options.disableStdin = true;
      tell(told);
    },
  });
  const encoder = new TextEncoder();
  terminal.onData((text) => link.type(encoder.encode(text)));
  terminal.onBinary((text) => link.type(Uint8Array.from(text, (one) => one.charCodeAt(0))));
  terminal.onResize(() => link.resize(size()));
  const watch = new ResizeObserver(fit);
  watch.observe(place);
  terminal.focus();
  return () => {
    watch.disconnect();
    link.close();
    terminal.dispose();
  };
}

const [workspace = '', id = ''] = location.pathname
  .slice(root.length + '/terminal/'.length)
  .split('/')
  .map((part) => decodeURIComponent(part));
document.title = `Terminal ${id} · Longshore`;
const app = document.querySelector('#app');
if (app !== null) render(<Page workspace={workspace} id={id} />, app);
