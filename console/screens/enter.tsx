// Sign-in: by the code of a link, which stands behind `#` in the address, or by a token that is pasted. A link that is
// opened in a browser with another session asks first: a page could have sent the person there.
import { useEffect, useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import { ApiError, root } from '../api/client.ts';
import { endedBecause, signIn, signedIn } from '../api/session.ts';
import { Command } from '../parts/notices.tsx';
import { shownText } from '../parts/hostile.ts';
import { Sentence } from '../parts/text.tsx';

/** Takes the code out of the address, so that neither the history nor a copied address has it. */
function takeCode(): string {
  const code = location.hash.slice(1);
  if (code !== '') history.replaceState(null, '', location.pathname);
  return code;
}
let given = location.pathname === `${root}/enter` ? takeCode() : '';
/** The code of the link that opened the page, once: a later sign-in has none. */
function givenOnce(): string {
  const code = given;
  given = '';
  return code;
}

/** Where the person wanted to go; empty: to the first screen. */
const wanted = (): string => {
  const path = new URLSearchParams(location.search).get('to') ?? '';
  return path.startsWith(`${root}/w/`) ? path : '';
};

export function Enter() {
  const { route } = useLocation();
  const [code, setCode] = useState(givenOnce);
  const [token, setToken] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [why, setWhy] = useState('');
  const now = signedIn.value;

  const begin = async (by: { readonly code: string } | { readonly token: string }): Promise<void> => {
    setBusy(true);
    setWhy('');
    try {
      await signIn(by);
      const facts = signedIn.value?.facts;
      if (facts !== undefined) route(wanted() || `${root}/`, true);
    } catch (error) {
      setWhy(error instanceof ApiError ? error.message : String(error));
    } finally {
      setCode('');
      setToken('');
      setBusy(false);
    }
  };
  useEffect(() => {
    if (code !== '' && now === null && !isBusy) void begin({ code });
    else if (code === '' && why === '' && now !== null && now !== undefined) route(wanted() || `${root}/`, true);
  }, [code, now, why]);

  if (code !== '' && now !== null && now !== undefined)
    return (
      <main id="main" class="enter">
        <h1>Change the session of this browser?</h1>
        <p>
          This browser is signed in to the workspace {shownText(now.facts.workspace.name)}. The link signs it in anew,
          perhaps as somebody else. Only go on if you made the link yourself.
        </p>
        <p class="actions">
          <button type="button" class="first" disabled={isBusy} onClick={() => void begin({ code })}>
            Sign in by the link
          </button>
          <button type="button" onClick={() => setCode('')}>
            Stay as I am
          </button>
        </p>
      </main>
    );
  return (
    <main id="main" class="enter">
      <h1>Longshore</h1>
      {endedBecause.value === '' || why !== '' ? null : (
        <p class="notice wait" role="status">
          You were signed out: {endedBecause.value}.
        </p>
      )}
      {why === '' ? null : (
        <p class="notice bad" role="alert">
          <Sentence text={why} />
        </p>
      )}
      {now === null || now === undefined ? null : (
        <p>
          This browser is still signed in. <a href={`${root}/`}>Go on as before</a>
        </p>
      )}
      {isBusy || code !== '' ? (
        <p role="status">Signing in …</p>
      ) : (
        <>
          <p>A link signs you in, once. This prints one:</p>
          <Command line="longshore console" />
          <form
            onSubmit={(event) => {
              event.preventDefault();
              void begin({ token });
            }}
          >
            <label for="token">Or paste a token. The browser does not keep it.</label>
            <input
              id="token"
              type="password"
              autocomplete="current-password"
              required
              value={token}
              onInput={(event) => setToken(event.currentTarget.value)}
            />
            <button type="submit" class="first">
              Sign in
            </button>
          </form>
          <p class="faint">
            <code>longshore context token</code> prints the token that your commands use.
          </p>
        </>
      )}
    </main>
  );
}
