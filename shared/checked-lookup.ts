// The look-up of a connection that dials checked addresses, and no other that the name may have by then. Pure.
import type { LookupAddress, LookupOptions } from 'node:dns';

type Found = (error: Error | null, address: string | LookupAddress[], family?: number) => void;

/** @param none - the error where there is no address */
export function checkedLookup(addresses: readonly LookupAddress[], none: (host: string) => Error) {
  return (host: string, options: LookupOptions, found: Found): void => {
    const [first] = addresses;
    if (first === undefined) return found(none(host), []);
    return options.all === true ? found(null, [...addresses]) : found(null, first.address, first.family);
  };
}
