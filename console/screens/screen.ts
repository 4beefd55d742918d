// Facts that every screen of a workspace is given.

export interface ScreenProps {
  readonly workspace: { readonly id: string; readonly name: string };
  /** Start of the addresses of this workspace's screens. */
  readonly home: string;
}
