// Texts of others on the screen: values and sentences, as text nodes only.
import { useState } from 'preact/hooks';
import { MOST_OF_VALUE, shownText } from './hostile.ts';
import { MOMENT, momentOf } from './time.ts';

/** Bytes as the text that they are; undefined: they are none. */
export function plainText(bytes: ArrayBuffer): string | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return text.includes('\0') ? undefined : text;
  } catch {
    return undefined;
  }
}

/** A value of several lines, with a button for the whole of it. */
export function Value({ text, label }: { readonly text: string; readonly label: string }) {
  const [isWhole, setWhole] = useState(false);
  const isCut = !isWhole && text.length > MOST_OF_VALUE;
  return (
    <>
      <pre class="value" tabIndex={0} aria-label={label}>
        {shownText(isCut ? text.slice(0, MOST_OF_VALUE) : text)}
      </pre>
      {isCut ? (
        <button type="button" onClick={() => setWhole(true)}>
          Open all {text.length} characters
        </button>
      ) : null}
    </>
  );
}

/** A sentence of the scheduler: commands stand between backticks, moments are told by the clock of this machine. */
export function Sentence({ text }: { readonly text: string }) {
  return (
    <>
      {shownText(text)
        .split('`')
        .map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : <Moments key={at} text={part} />))}
    </>
  );
}

function Moments({ text }: { readonly text: string }) {
  return (
    <>
      {text.split(MOMENT).map((part, at) =>
        at % 2 === 1 ? (
          <time key={at} dateTime={part} title={part}>
            {momentOf(part)}
          </time>
        ) : (
          part
        ),
      )}
    </>
  );
}
