// Original file: shared/protocol/agent.proto


export interface Conditions {
  'names'?: (string)[];
  'words'?: ({[key: string]: string});
}

export interface Conditions__Output {
  'names': (string)[];
  'words': ({[key: string]: string});
}
