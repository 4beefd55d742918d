// Parts of addresses that name workspaces. Names are not unique. Pure.

export interface NamedWorkspace {
  readonly id: string;
  readonly name: string;
}

/** A workspace's name, where no other workspace has it as its name or id; else its id. */
export const segmentAmong = (all: readonly NamedWorkspace[], { id, name }: NamedWorkspace): string =>
  name === '' || all.some((one) => one.id !== id && (one.name === name || one.id === name)) ? id : name;

/** The workspace that a part of an address names; undefined: none of these. */
export const workspaceAmong = (all: readonly NamedWorkspace[], segment: string): NamedWorkspace | undefined =>
  all.find(({ id }) => id === segment) ?? all.find(({ name }) => name === segment);
