// The answer to a call, as text that nothing runs: JSON laid out, other text as it is, and bytes as their size and type
// with a button that saves them.
import { useEffect, useState } from 'preact/hooks';
import { shownText } from './hostile.ts';
import { Value } from './text.tsx';

export interface Bytes {
  readonly type: string;
  readonly parts: readonly Uint8Array<ArrayBuffer>[];
}

const TEXT = /^(?:text\/|application\/(?:[\w.+-]+\+)?(?:json|xml)\b)/i;

export const textOf = ({ parts }: Pick<Bytes, 'parts'>): string => {
  const decoder = new TextDecoder();
  return parts.map((part) => decoder.decode(part, { stream: true })).join('') + decoder.decode();
};

/** JSON with line ends, where a text is JSON. */
export function laidOut(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function AnswerValue({ of, label }: { readonly of: Bytes; readonly label: string }) {
  if (TEXT.test(of.type)) {
    const text = textOf(of);
    return text === '' ? <p>It is empty.</p> : <Value label={label} text={laidOut(text)} />;
  }
  const bytes = of.parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
  return (
    <p>
      {bytes} bytes of type {shownText(of.type === '' ? 'application/octet-stream' : of.type)}.{' '}
      <Download of={of} name="answer" />
    </p>
  );
}

/** A link that saves bytes as a file, and never opens them here. */
function Download({ of, name }: { readonly of: Bytes; readonly name: string }) {
  const [url, setUrl] = useState('');
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([...of.parts], { type: 'application/octet-stream' }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [of]);
  return (
    <a href={url} download={name}>
      Save it
    </a>
  );
}
