// Original file: shared/protocol/agent.proto


export interface RenewCredentialRequest {
}

export interface RenewCredentialRequest__Output {
}
