// Original file: shared/protocol/agent.proto


export interface Delivered {
}

export interface Delivered__Output {
}
