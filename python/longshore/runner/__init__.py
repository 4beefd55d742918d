"""The program inside a container: imports the handler, runs `on_start` once, and answers tasks from the agent's socket.

The agent starts it as `python3 -m longshore.runner`. Standard library only, Python 3.8 to 3.14. Every import here would
slow down every cold start, so this file has none.
"""
