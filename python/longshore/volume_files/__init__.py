"""The file server of a volume: reads and writes files for signed addresses, in a helper container of the agent.

Only the volume is mounted there, at `/volume`. The requests come over connections to the agent's socket, each with the
frames of a streamed call (docs/runner-protocol.md).
"""
