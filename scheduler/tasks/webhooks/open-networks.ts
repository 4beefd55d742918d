// Networks that messages of workspaces may be sent to, as the administrator opens them at run time. Ports of
// Longshore's own services and stores stay closed in an opened network: they trust who is in it.
import { AddressRules } from '#shared/address-rules.ts';

/** Where messages may be sent. */
export interface DialRules {
  permits(address: string, port: number): boolean;
  /** Whether the operator's networks have the address. */
  names(address: string): boolean;
  /** Whether the port is closed where the operator opened the network. */
  closes?(address: string, port: number): boolean;
}

export class OpenNetworks implements DialRules {
  readonly #closedPorts: Set<number>;
  #rules: AddressRules;

  /** @throws Error when the text is no list of networks */
  constructor(networks: string, closedPorts: Iterable<number>) {
    this.#rules = rulesOf(networks);
    this.#closedPorts = new Set(closedPorts);
  }

  /** @throws Error when the text is no list of networks */
  set(networks: string): void {
    this.#rules = rulesOf(networks);
  }

  /** A port that was picked when it was opened. */
  closePort(port: number): void {
    this.#closedPorts.add(port);
  }

  permits(address: string, port: number): boolean {
    return this.#rules.permits(address) && !this.closes(address, port);
  }

  names(address: string): boolean {
    return this.#rules.names(address);
  }

  closes(address: string, port: number): boolean {
    return this.#closedPorts.has(port) && this.#rules.names(address);
  }
}

/** Why a text is no list of networks, as text behind the field's name. */
export function networksProblem(text: string): string | undefined {
  const rules = AddressRules.read(text);
  if (rules instanceof AddressRules) return undefined;
  return `must be networks such as 10.1.0.0/16, with commas between them, got ${JSON.stringify(rules.wrong)}`;
}

function rulesOf(networks: string): AddressRules {
  const rules = AddressRules.read(networks);
  if (!(rules instanceof AddressRules)) throw new Error(`${rules.wrong} is no network`);
  return rules;
}
