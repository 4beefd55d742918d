// The way to a shell in a container: a page of its own.
import { root } from '../api/client.ts';

export function TerminalLink({ home, id }: { readonly home: string; readonly id: string }) {
  const segment = home.slice(`${root}/w/`.length);
  return (
    <a
      href={`${root}/terminal/${segment}/${encodeURIComponent(id)}`}
      target="_blank"
      rel="noopener"
      aria-label={`Shell in ${id.slice(-8)}, in a new tab`}
    >
      Shell
    </a>
  );
}
