"""The program inside a container: it imports the handler, runs `on_start` once, and answers tasks that come over the agent's socket.

Started by the agent as `python3 -m longshore.runner`. Standard library only, Python 3.8 to 3.14. Every import here is paid on every
cold start, so this file stays empty of them.
"""
