// Parts of the console that are loaded when they are shown, so that the first script stays small.
import type { FunctionComponent } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { onceMore } from '../api/once-more.ts';
import { Skeleton } from './notices.tsx';

/** A component whose file is loaded with its first use. A file that does not come says how to go on. */
export function later<P extends object>(load: () => Promise<FunctionComponent<P>>): FunctionComponent<P> {
  let loaded: FunctionComponent<P> | undefined;
  return function Later(props: P) {
    const [Loaded, setLoaded] = useState<FunctionComponent<P> | undefined>(() => loaded);
    const [isLost, setLost] = useState(false);
    useEffect(() => {
      if (loaded !== undefined) return;
      onceMore(load).then(
        (component) => {
          loaded = component;
          setLoaded(() => component);
        },
        () => setLost(true),
      );
    }, []);
    if (Loaded !== undefined) return <Loaded {...props} />;
    if (!isLost) return <Skeleton />;
    return (
      <p class="notice bad" role="alert">
        This part of the console did not come: the scheduler was upgraded, or does not answer. Load the page again.
      </p>
    );
  };
}
