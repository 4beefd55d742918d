// Original file: shared/protocol/agent.proto


export interface Superseded {
}

export interface Superseded__Output {
}
